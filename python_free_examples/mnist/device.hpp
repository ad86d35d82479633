// A device owns the memory of the model and computes with it. There are two kinds: the CPU with the library oneDNN
// (processor.cpp), and a GPU with cuDNN and cuBLAS (gpu/). The code for the GPU is a library of its own, which is
// loaded on demand.
//
// A device executes its calls in order. On a GPU, functions start a call and return before it has run, unless their
// comment says that they wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elements.hpp"
#include "loss.hpp"

namespace mnist {

inline constexpr std::string_view kDeviceNames[] = {"cpu", "cuda"};

/// Floats in a device's memory.
class Vector {
 public:
  Vector() = default;
  /// Makes a vector of `count` floats at `data`. The deleter of `data` frees the memory.
  Vector(std::shared_ptr<float> data, std::size_t count) : data_(std::move(data)), count_(count) {}
  std::span<float> span() const { return {data_.get(), count_}; }

 private:
  std::shared_ptr<float> data_;
  std::size_t count_ = 0;
};

/// One call of a device's library, ready to run.
struct Call {
  std::string name;
  std::function<void()> execute;
  /// Index from which all gradients are final after this call. Empty: the call completes no gradients.
  std::optional<std::size_t> gradients_from = {};
};

/// A forward and a backward pass over a fixed number of images: the calls, and the buffers that they read and write. A
/// pass for inference has no backward calls.
class Pass {
 public:
  virtual ~Pass() = default;

  std::size_t images = 0;
  std::span<float> pixels;           ///< input in CPU memory: images x 784
  std::span<std::uint8_t> labels;    ///< input in CPU memory: images, each 0 to 9
  std::span<const float> logits;     ///< output of the forward calls in device memory: images x 10
  std::span<float> logit_gradients;  ///< output of loss() and input of the backward calls in device memory: images x 10
  std::vector<Call> forward, backward;

  /// Scores logits by labels. In a pass for training, sets logit_gradients to the gradients of `weight` times the
  /// summed loss.
  virtual void loss(float weight) = 0;
  /// Waits for the last loss() and returns its score. Only then may pixels and labels be overwritten.
  virtual Score score() = 0;
};

/// Parameters of a layer in device memory: kernels as in model.hpp, and one bias for each output.
struct Layer {
  std::string name;
  std::vector<std::int64_t> kernel_shape;
  std::size_t offset;  ///< first element of the kernel in the flat vectors
  std::span<float> kernel, bias, kernel_gradient, bias_gradient;
};

/// Builds a pass layer by layer, in the order of the forward pass.
class PassBuilder {
 public:
  virtual ~PassBuilder() = default;
  /// Adds a convolution of the pixels: 3 x 3, stride 1, no padding. A max_pool_relu() must follow.
  virtual void convolution(const Layer& layer) = 0;
  /// Adds a pool of windows of 2 x 2. Its outputs are features in the order (row, column, channel).
  virtual void max_pool_relu(const std::string& name) = 0;
  virtual void dense(const Layer& layer, bool relu) = 0;
  /// Completes the pass. The outputs of the last layer are the logits.
  virtual std::unique_ptr<Pass> finish() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;    ///< returns one of kDeviceNames
  virtual std::string description() const = 0;  ///< returns a text for messages
  /// Returns the cudaStream_t that the collectives wait for before they read device memory. Returns nothing if device
  /// memory is CPU memory.
  virtual std::optional<void*> stream() const = 0;

  /// Returns a vector of zeros.
  virtual Vector make(std::size_t count) = 0;
  virtual void clear(std::span<float> values) = 0;
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
  /// Copies from device memory to CPU memory, then waits.
  virtual void read(std::span<const float> from, std::span<float> to) = 0;
  /// Copies from CPU memory to device memory, then waits.
  virtual void write(std::span<const float> from, std::span<float> to) = 0;
  /// Computes sum += more.
  virtual void add(std::span<const float> more, std::span<float> sum) = 0;
  /// Updates all weights once. Each element is computed alone and each operation is rounded by IEEE 754, so equal
  /// inputs give equal bits on every device. `state` is as long as the weights, twice as long for adam, and empty for
  /// sgd.
  virtual void update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                      std::span<float> state, float rate) = 0;

  /// Returns a builder for at least one image. Its pass may be used only by the thread that built it.
  virtual std::unique_ptr<PassBuilder> build(std::size_t images, bool training) = 0;

  /// Returns whether all calls so far have completed. Does not wait.
  virtual bool idle() = 0;

  std::vector<float> on_host(std::span<const float> values) {
    std::vector<float> copy(values.size());
    read(values, copy);
    return copy;
  }
};

/// Calls `while_waiting` repeatedly until the device is idle. Throws std::runtime_error if the device has failed or is
/// busy for ten minutes.
void wait_for(
    Device& device, const std::function<void()>& while_waiting = [] {});

/// Returns this processor. It computes only on the calling thread.
Device& processor();

/// Returns the GPU for the process with number `local_rank` on its machine. Processes take GPUs in turn if there are
/// fewer GPUs. Throws std::runtime_error in one line without a GPU or without the library for it.
std::unique_ptr<Device> load_cuda_device(int local_rank);

}  // namespace mnist
