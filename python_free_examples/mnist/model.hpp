// The three models, whatever they are computed on.
//
//   softmax   784 -> 10                                                                      7,850 parameters
//   mlp       784 -> 128 ReLU -> 10                                                        101,770
//   cnn       Conv 32 3x3 -> MaxPool 2x2 -> ReLU -> Flatten -> Dense 64 ReLU -> Dense 10   347,146
//
// The CNN is the one of TensorFlow's lecture, where the ReLU stands before the pool: the two commute, and behind the
// pool there is a quarter of the elements.
//
// All parameters are one vector and all gradients another, in plain layouts and in the order of the forward pass, so
// that the collectives, the optimizer and a checkpoint need to know nothing of layers. They lie in the memory of the
// model's device.
//
// A model is used by the thread that made it.
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

/// A parameter tensor: elements [offset, offset + count) of the flat vectors, row-major over `shape`.
/// Convolution kernels are (outputs, inputs, rows, columns), dense kernels (outputs, inputs), and the inputs of the
/// first dense layer behind the convolution are ordered (row, column, channel).
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset = 0, count = 0;
};

class Model {
 public:
  /// `name` is one of kModelNames. Weights are drawn uniformly, with He's limit before a ReLU and Glorot's in the
  /// last layer; biases are zero. Equal seeds give equal bits.
  /// The device outlives the model.
  Model(std::string_view name, std::uint64_t seed, Device& device = processor());

  const std::string& name() const { return name_; }
  Device& device() const { return device_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Where each layer's parameters begin, in order.
  std::vector<std::size_t> layer_offsets() const;
  std::span<float> parameters() { return parameters_.span(); }
  std::span<const float> parameters() const { return parameters_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::size_t parameter_count() const { return tensors_.back().offset + tensors_.back().count; }

  /// The pass for `images` images (at least 1); made at the first call and kept.
  Pass& training_pass(std::size_t images) { return pass(images, true); }
  Pass& inference_pass(std::size_t images) { return pass(images, false); }

  /// pixels to logits.
  void forward(const Pass& pass) {
    for (const Call& call : pass.forward) call.execute();
  }
  /// logit_gradients to gradients(). Between calls and at the end says `ready(from)`: the gradients from element `from`
  /// to the end are final for whatever follows on the device. At the end `from` is 0.
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
