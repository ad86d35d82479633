// Implementation of the models that mnist_trainer trains. For each model, one function lists the layers. From this
// list, a device (CPU or GPU) builds its forward and backward passes, for any number of images.
#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "dataset.hpp"
#include "random.hpp"

namespace mnist {
namespace {

std::vector<Tensor> tensors_of(std::string_view model) {
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::size_t offset = tensors.empty() ? 0 : tensors.back().offset + tensors.back().count;
    const auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    tensors.push_back({name, shape, offset, static_cast<std::size_t>(count)});
  };
  const auto add_layer = [&](const std::string& name, const std::vector<std::int64_t>& kernel_shape) {
    add(name + ".kernel", kernel_shape);
    add(name + ".bias", {kernel_shape[0]});
  };
  if (model == "softmax") {
    add_layer("dense", {kClasses, kPixels});
  } else if (model == "mlp") {
    add_layer("dense_1", {128, kPixels});
    add_layer("dense_2", {kClasses, 128});
  } else if (model == "cnn") {
    add_layer("convolution", {32, 1, 3, 3});
    add_layer("dense_1", {64, 13 * 13 * 32});
    add_layer("dense_2", {kClasses, 64});
  } else {
    throw std::invalid_argument(fmt::format("unknown model \"{}\": softmax, mlp or cnn expected", model));
  }
  return tensors;
}

}  // namespace

Model::Model(std::string_view name, std::uint64_t seed, Device& device)
    : name_(name),
      device_(device),
      tensors_(tensors_of(name)),
      parameters_(device.make(parameter_count())),
      gradients_(device.make(parameter_count())) {
  std::vector<float> weights(parameter_count());
  for (const Tensor& tensor : tensors_) {
    if (tensor.shape.size() == 1) continue;  // a bias, which stays zero
    // A fan is the number of inputs or outputs of a kernel, times the number of elements of its window (taps). The
    // limit of the random weights is He's for layers before a ReLU, and Glorot's for the last layer.
    const auto taps = static_cast<double>(tensor.count) / static_cast<double>(tensor.shape[0] * tensor.shape[1]);
    const double fan_in = taps * static_cast<double>(tensor.shape[1]);
    const double fan_out = tensor.offset == layer_offsets().back() ? taps * static_cast<double>(tensor.shape[0]) : 0.0;
    const auto limit = static_cast<float>(std::sqrt(6.0 / (fan_in + fan_out)));
    Random random(seed, 0x77656967687473, tensor.offset);
    for (float& weight : std::span(weights).subspan(tensor.offset, tensor.count))
      weight = random.uniform(-limit, limit);
  }
  device_.write(weights, parameters());
}

std::vector<std::size_t> Model::layer_offsets() const {
  std::vector<std::size_t> offsets;
  for (const Tensor& tensor : tensors_)
    // a layer begins with its kernel, and its bias follows
    if (tensor.shape.size() > 1) offsets.push_back(tensor.offset);
  return offsets;
}

Layer Model::layer(const std::string& name) const {
  const auto kernel = std::ranges::find(tensors_, name + ".kernel", &Tensor::name);
  const auto of = [](const Vector& vector, const Tensor& tensor) {
    return vector.span().subspan(tensor.offset, tensor.count);
  };
  return {name,
          kernel->shape,
          kernel->offset,
          of(parameters_, kernel[0]),
          of(parameters_, kernel[1]),
          of(gradients_, kernel[0]),
          of(gradients_, kernel[1])};
}

Pass& Model::pass(std::size_t images, bool training) {
  std::unique_ptr<Pass>& known = passes_[{images, training}];
  if (known) return *known;
  const std::unique_ptr<PassBuilder> builder = device_.build(images, training);
  if (name_ == "cnn") {
    builder->convolution(layer("convolution"));
    builder->max_pool_relu("pool");
  }
  if (name_ != "softmax") builder->dense(layer("dense_1"), true);
  builder->dense(layer(name_ == "softmax" ? "dense" : "dense_2"), false);
  known = builder->finish();
  return *known;
}

}  // namespace mnist
