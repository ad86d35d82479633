// The three models that the trainer can train, on any device:
//
//   softmax   784 -> 10                                                                      7,850 parameters
//   mlp       784 -> 128 ReLU -> 10                                                        101,770
//   cnn       Conv 32 3x3 -> MaxPool 2x2 -> ReLU -> Flatten -> Dense 64 ReLU -> Dense 10   347,146
//
// The cnn is the network of a lecture on TensorFlow. In the lecture, the ReLU precedes the pool. Here the ReLU follows
// the pool, because a quarter as many elements are left there. The result is the same.
//
// All parameters are in one vector, and all gradients in another, in the order of the forward pass. Collectives,
// optimizer and checkpoints can thus treat each vector as a whole, without layers. Both vectors are in the memory of
// the model's device (CPU or GPU).
//
// Only the thread that made a model may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device.hpp"

namespace mnist {

inline constexpr std::string_view kModelNames[] = {"softmax", "mlp", "cnn"};

/// Tensor of parameters: elements [offset, offset + count) of the vectors of parameters and gradients, row-major over
/// `shape`.
///
/// A convolution kernel has the dimensions outputs, inputs, rows, columns. A dense kernel has the dimensions outputs
/// and inputs. The inputs of the dense layer after the convolution are ordered by row, column and channel.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset = 0, count = 0;
};

class Model {
 public:
  /// Makes the model `name`, one of kModelNames. Weights are uniform random numbers, with He's limit before a ReLU and
  /// Glorot's limit in the last layer. Biases are zero. Equal seeds give equal bits. The device must outlive the model.
  Model(std::string_view name, std::uint64_t seed, Device& device = processor());

  const std::string& name() const { return name_; }
  Device& device() const { return device_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Returns the first element of each layer's parameters, in order.
  std::vector<std::size_t> layer_offsets() const;
  std::span<float> parameters() { return parameters_.span(); }
  std::span<const float> parameters() const { return parameters_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::size_t parameter_count() const { return tensors_.back().offset + tensors_.back().count; }

  /// Returns the pass for `images` images (at least 1). The first call builds it.
  Pass& training_pass(std::size_t images) { return pass(images, true); }
  Pass& inference_pass(std::size_t images) { return pass(images, false); }

  /// Computes logits from pixels.
  void forward(const Pass& pass) {
    for (const Call& call : pass.forward) call.execute();
  }
  /// Computes gradients() from logit_gradients. Calls `ready(from)` between calls and at the end. The gradients from
  /// element `from` to the end are then final for later work on the device. The last `from` is 0.
  template <class Ready>
  void backward(const Pass& pass, Ready&& ready) {
    std::size_t from = parameters().size();
    for (const Call& call : pass.backward) {
      call.execute();
      from = call.gradients_from.value_or(from);
      ready(from);
    }
  }

 private:
  Layer layer(const std::string& name) const;
  Pass& pass(std::size_t images, bool training);

  std::string name_;
  Device& device_;
  const std::vector<Tensor> tensors_;
  Vector parameters_, gradients_;
  std::map<std::pair<std::size_t, bool>, std::unique_ptr<Pass>> passes_;
};

}  // namespace mnist
