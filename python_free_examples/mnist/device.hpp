// Where a run computes: the memory of its numbers, and what is done with them. There are two: this processor, with
// oneDNN (processor.cpp), and a GPU, with cuDNN and cuBLAS (gpu/), which is a library of its own that is loaded when
// it is asked for.
//
// A device performs its calls in their order. On a GPU they return before they are performed; what waits says so.
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
  /// `data` knows how it is freed.
  Vector(std::shared_ptr<float> data, std::size_t count) : data_(std::move(data)), count_(count) {}
  std::span<float> span() const { return {data_.get(), count_}; }

 private:
  std::shared_ptr<float> data_;
  std::size_t count_ = 0;
};

/// One call of a device's library, ready to be executed.
struct Call {
  std::string name;
  std::function<void()> execute;
  /// After this call the gradients from this element to the end are final.
  std::optional<std::size_t> gradients_from = {};
};

/// The calls for one number of images, and where they read and write. A pass for inference has no backward calls.
class Pass {
 public:
  virtual ~Pass() = default;

  std::size_t images = 0;
  std::span<float> pixels;           ///< in, in the host's memory: images x 784
  std::span<std::uint8_t> labels;    ///< in, in the host's memory: images, each 0 to 9
  std::span<const float> logits;     ///< out of the forward calls, in the device's: images x 10
  std::span<float> logit_gradients;  ///< out of loss() and in for the backward calls, in the device's: images x 10
  std::vector<Call> forward, backward;

  /// Scores logits by labels. In a pass for training, logit_gradients are then those of `weight` times the summed loss.
  virtual void loss(float weight) = 0;
  /// Of the last loss(); waits for it. Then, and not before, pixels and labels may be those of the next images.
  virtual Score score() = 0;
};

/// The parameters of a layer, in the device's memory: kernels as model.hpp says, biases one for each output.
struct Layer {
  std::string name;
  std::vector<std::int64_t> kernel_shape;
  std::size_t offset;  ///< of the kernel, in the flat vectors
  std::span<float> kernel, bias, kernel_gradient, bias_gradient;
};

/// Makes a pass, layer by layer, in the order of the forward pass.
class PassBuilder {
 public:
  virtual ~PassBuilder() = default;
  /// 3 x 3, stride 1, no padding, of the pixels. A max_pool_relu() follows.
  virtual void convolution(const Layer& layer) = 0;
  /// Of windows of 2 x 2; what comes out are features, ordered (row, column, channel).
  virtual void max_pool_relu(const std::string& name) = 0;
  virtual void dense(const Layer& layer, bool relu) = 0;
  /// What the last layer gave are the logits.
  virtual std::unique_ptr<Pass> finish() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;    ///< of kDeviceNames
  virtual std::string description() const = 0;  ///< for people
  /// What the collectives wait for before they read the device's memory: a cudaStream_t; nothing where the memory is
  /// the host's.
  virtual std::optional<void*> stream() const = 0;

  /// Zeros.
  virtual Vector make(std::size_t count) = 0;
  virtual void clear(std::span<float> values) = 0;
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
  /// From the device's memory to the host's; waits.
  virtual void read(std::span<const float> from, std::span<float> to) = 0;
  /// From the host's memory to the device's; waits.
  virtual void write(std::span<const float> from, std::span<float> to) = 0;
  /// sum += more
  virtual void add(std::span<const float> more, std::span<float> sum) = 0;
  /// One update of all weights. Every element on its own and every operation rounded by IEEE 754, so equal inputs give
  /// equal bits on every device. `state`: as long as the weights, or twice as long for adam; empty for sgd.
  virtual void update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                      std::span<float> state, float rate) = 0;

  /// For that many images, at least 1. What it makes is used by the thread that made it.
  virtual std::unique_ptr<PassBuilder> build(std::size_t images, bool training) = 0;

  /// Whether all calls so far are performed. Does not wait.
  virtual bool idle() = 0;

  std::vector<float> on_host(std::span<const float> values) {
    std::vector<float> copy(values.size());
    read(values, copy);
    return copy;
  }
};

/// Returns when the device is idle, and calls `meanwhile` over and over until then. Throws std::runtime_error when it
/// is not after ten minutes, or has failed.
void wait_for(
    Device& device, const std::function<void()>& meanwhile = [] {});

/// This processor. Computes on the thread that calls, and on that alone.
Device& processor();

/// The GPU for the process that is the `local_rank`-th on its machine, by turns where there are fewer GPUs. Throws
/// std::runtime_error, in one line, where there is none, or no library to use it with.
std::unique_ptr<Device> load_cuda_device(int local_rank);

}  // namespace mnist
