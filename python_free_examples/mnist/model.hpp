// The three models, as programs of oneDNN calls.
//
//   softmax   784 -> 10                                                                      7,850 parameters
//   mlp       784 -> 128 ReLU -> 10                                                        101,770
//   cnn       Conv 32 3x3 -> MaxPool 2x2 -> ReLU -> Flatten -> Dense 64 ReLU -> Dense 10   347,146
//
// The CNN is the one of TensorFlow's lecture, where the ReLU stands before the pool: the two commute, and behind the
// pool there is a quarter of the elements.
//
// All parameters are one vector and all gradients another, in plain layouts and in the order of the forward pass, so
// that the collectives, the optimizer and a checkpoint need to know nothing of layers. oneDNN chooses the layouts of
// activations; a reorder stands wherever two neighbours disagree.
//
// A model is used by the thread that made it, and computes on that thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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

/// Memory for the library's arithmetic: aligned, and large blocks in large pages, since a step walks through more small
/// pages than a processor keeps translations for.
class Block {
 public:
  explicit Block(std::size_t bytes);
  void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
};

/// One call of oneDNN, ready to be executed.
struct Call {
  std::string name;
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  /// After this call the gradients from this element to the end are final.
  std::optional<std::size_t> gradients_from = {};
};

/// The calls for one number of images, and where they read and write. A pass for inference has no backward calls.
struct Pass {
  std::size_t images = 0;
  std::span<float> pixels;           ///< in: images x 784
  std::span<const float> logits;     ///< out: images x 10
  std::span<float> logit_gradients;  ///< in, for the backward calls: images x 10
  std::vector<Call> forward, backward;
  std::vector<Block> blocks;  ///< what the calls read and write
};

class Model {
 public:
  /// `name` is one of kModelNames. Weights are drawn uniformly, with He's limit before a ReLU and Glorot's in the
  /// last layer; biases are zero. Equal seeds give equal bits.
  Model(std::string_view name, std::uint64_t seed);

  const std::string& name() const { return name_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Where each layer's parameters begin, in order.
  std::vector<std::size_t> layer_offsets() const;
  std::span<float> parameters() { return {static_cast<float*>(parameters_.data()), parameter_count()}; }
  std::span<const float> parameters() const { return {static_cast<float*>(parameters_.data()), parameter_count()}; }
  std::span<float> gradients() { return {static_cast<float*>(gradients_.data()), parameter_count()}; }
  std::size_t parameter_count() const { return tensors_.back().offset + tensors_.back().count; }

  /// The pass for `images` images (at least 1); made at the first call and kept.
  Pass& training_pass(std::size_t images) { return pass(images, dnnl::prop_kind::forward_training); }
  Pass& inference_pass(std::size_t images) { return pass(images, dnnl::prop_kind::forward_inference); }

  /// Executes one call on the calling thread.
  void execute(const Call& call) { call.primitive.execute(stream_, call.arguments); }
  /// pixels to logits.
  void forward(const Pass& pass) {
    for (const Call& call : pass.forward) execute(call);
  }
  /// logit_gradients to gradients(). Between calls and at the end says `ready(from)`: the gradients from element `from`
  /// to the end are final. At the end `from` is 0.
  template <class Ready>
  void backward(const Pass& pass, Ready&& ready) {
    std::size_t from = parameters().size();
    for (const Call& call : pass.backward) {
      execute(call);
      from = call.gradients_from.value_or(from);
      ready(from);
    }
  }

 private:
  friend class PassBuilder;

  Pass& pass(std::size_t images, dnnl::prop_kind kind);

  std::string name_;
  const std::vector<Tensor> tensors_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Block parameters_, gradients_;
  std::map<std::pair<std::size_t, dnnl::prop_kind>, std::unique_ptr<Pass>> passes_;
};

}  // namespace mnist
