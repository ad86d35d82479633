// A PassBuilder walks the layers once, forwards. Each layer adds its forward calls at the end of the program and its
// backward calls as a group; the groups are performed last layer first.
#include "model.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>

#include "dataset.hpp"
#include "random.hpp"

namespace mnist {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;

constexpr auto kFloat = memory::data_type::f32;

dnnl::primitive_attr then_relu() {
  dnnl::post_ops relu;
  relu.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(relu);
  return attributes;
}

std::span<float> view(const memory& buffer) {
  return {static_cast<float*>(buffer.get_data_handle()), buffer.get_desc().get_size() / sizeof(float)};
}

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

class PassBuilder {
 public:
  PassBuilder(Model& model, Pass& pass, prop_kind kind)
      : model_(model), pass_(pass), kind_(kind), images_(static_cast<memory::dim>(pass.images)) {
    here_.value = make({{images_, kPixels}, kFloat, Tag::nc});
    pass_.pixels = view(here_.value);
  }

  /// 3 x 3, stride 1, no padding, of the pixels.
  void convolution(const std::string& name) {
    const View kernel = parameter(name + ".kernel", Tag::oihw), bias = parameter(name + ".bias", Tag::x);
    const memory::dims one = {1, 1}, none = {0, 0};
    const memory::dim channels = kernel.value.get_desc().dims()[0], rows = kSide - 2, columns = kSide - 2;
    const memory::desc source({images_, 1, kSide, kSide}, kFloat, Tag::nchw);
    const memory::desc any_kernel = any(kernel.value), bias_layout = bias.value.get_desc();
    const memory::desc any_output({images_, channels, rows, columns}, kFloat, Tag::any);

    const dnnl::convolution_forward::primitive_desc forward(
        {kind_, algorithm::convolution_direct, source, any_kernel, bias_layout, any_output, one, none, none},
        model_.engine_);
    // Behind the pool nobody reads the convolution's output again, so that its gradient can take its place.
    const memory output = make(forward.dst_desc());
    const Edge in = {seen_as(source, here_.value), {}}, out = {output, output};
    const memory chosen_kernel = reordered(name + " kernel", kernel.value, forward.weights_desc(), pass_.forward);
    add(name + " forward", dnnl::convolution_forward(forward),
        {{DNNL_ARG_SRC, in.value},
         {DNNL_ARG_WEIGHTS, chosen_kernel},
         {DNNL_ARG_BIAS, bias.value},
         {DNNL_ARG_DST, out.value}});
    here_ = out;
    if (!training()) return;

    const dnnl::convolution_backward_weights::primitive_desc weights(
        {algorithm::convolution_direct, source, any_kernel, bias_layout, forward.dst_desc(), one, none, none},
        model_.engine_, forward);
    const bool plain = weights.diff_weights_desc() == kernel.gradient.get_desc();
    const memory kernel_gradient = plain ? kernel.gradient : make(weights.diff_weights_desc());
    std::vector<Call> group;
    group.push_back({name + " backward weights",
                     dnnl::convolution_backward_weights(weights),
                     {{DNNL_ARG_SRC, in.value},
                      {DNNL_ARG_DIFF_DST, out.gradient},
                      {DNNL_ARG_DIFF_WEIGHTS, kernel_gradient},
                      {DNNL_ARG_DIFF_BIAS, bias.gradient}}});
    if (!plain) group.push_back(reorder(name + " kernel gradient", kernel_gradient, kernel.gradient));
    group.back().gradients_from = kernel.offset;
    groups_.push_back(std::move(group));  // it is the first layer: nobody asks for the gradient of the pixels
  }

  void max_pool_relu(const std::string& name) {
    const memory::dims two = {2, 2}, none = {0, 0}, shape = here_.value.get_desc().dims();
    const memory::desc source = here_.value.get_desc();
    const memory::desc any_output({shape[0], shape[1], shape[2] / 2, shape[3] / 2}, kFloat, Tag::any);

    const dnnl::pooling_forward::primitive_desc forward(
        {kind_, algorithm::pooling_max, source, any_output, two, two, none, none}, then_relu(), model_.engine_);
    const Edge in = here_, out = edge(forward.dst_desc());
    Arguments arguments = {{DNNL_ARG_SRC, in.value}, {DNNL_ARG_DST, out.value}};
    const memory places = training() ? make(forward.workspace_desc()) : memory();  // of the maxima
    if (training()) arguments.emplace(DNNL_ARG_WORKSPACE, places);
    add(name + " forward", dnnl::pooling_forward(forward), std::move(arguments));
    here_ = out;
    if (!training()) return;

    const dnnl::pooling_backward::primitive_desc backward(
        {algorithm::pooling_max, source, forward.dst_desc(), two, two, none, none}, model_.engine_, forward);
    groups_.push_back(
        {relu_backward(name, out),
         {name + " backward",
          dnnl::pooling_backward(backward),
          {{DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_WORKSPACE, places}, {DNNL_ARG_DIFF_SRC, in.gradient}}}});
  }

  void dense(const std::string& name, bool relu) {
    flatten();
    const View kernel = parameter(name + ".kernel", Tag::oi), bias = parameter(name + ".bias", Tag::x);
    const memory::desc source = here_.value.get_desc(), kernel_layout = kernel.value.get_desc(),
                       bias_layout = bias.value.get_desc();
    const memory::desc output({images_, kernel_layout.dims()[0]}, kFloat, Tag::nc);

    const dnnl::inner_product_forward::primitive_desc forward({kind_, source, kernel_layout, bias_layout, output},
                                                              relu ? then_relu() : dnnl::primitive_attr(),
                                                              model_.engine_);
    const Edge in = here_, out = edge(output);
    add(name + " forward", dnnl::inner_product_forward(forward),
        {{DNNL_ARG_SRC, in.value},
         {DNNL_ARG_WEIGHTS, kernel.value},
         {DNNL_ARG_BIAS, bias.value},
         {DNNL_ARG_DST, out.value}});
    here_ = out;
    if (!training()) return;

    std::vector<Call> group;
    if (relu) group.push_back(relu_backward(name, out));
    const dnnl::inner_product_backward_weights::primitive_desc weights({source, kernel_layout, bias_layout, output},
                                                                       model_.engine_, forward);
    group.push_back({name + " backward weights",
                     dnnl::inner_product_backward_weights(weights),
                     {{DNNL_ARG_SRC, in.value},
                      {DNNL_ARG_DIFF_DST, out.gradient},
                      {DNNL_ARG_DIFF_WEIGHTS, kernel.gradient},
                      {DNNL_ARG_DIFF_BIAS, bias.gradient}},
                     kernel.offset});
    if (in.gradient) {
      const dnnl::inner_product_backward_data::primitive_desc data({source, kernel_layout, output}, model_.engine_,
                                                                   forward);
      group.push_back(
          {name + " backward data",
           dnnl::inner_product_backward_data(data),
           {{DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_WEIGHTS, kernel.value}, {DNNL_ARG_DIFF_SRC, in.gradient}}});
    }
    groups_.push_back(std::move(group));
  }

  /// What the last layer gave are the logits.
  void finish() {
    pass_.logits = view(here_.value);
    if (training()) pass_.logit_gradients = view(here_.gradient);
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
      std::move(group->begin(), group->end(), std::back_inserter(pass_.backward));
  }

 private:
  using Arguments = std::unordered_map<int, memory>;
  /// What flows between two layers. The gradient is empty where nobody asks for it.
  struct Edge {
    memory value, gradient;
  };
  struct View {
    memory value, gradient;
    std::size_t offset;
  };

  bool training() const { return kind_ == prop_kind::forward_training; }
  memory make(const memory::desc& layout) {
    return {layout, model_.engine_, pass_.blocks.emplace_back(layout.get_size()).data()};
  }
  /// The same elements under another shape.
  memory seen_as(const memory::desc& layout, const memory& buffer) {
    return {layout, model_.engine_, buffer.get_data_handle()};
  }
  Edge edge(const memory::desc& layout) { return {make(layout), training() ? make(layout) : memory()}; }
  static memory::desc any(const memory& like) { return {like.get_desc().dims(), kFloat, Tag::any}; }

  View parameter(const std::string& name, Tag tag) {
    const auto tensor = std::find_if(model_.tensors_.begin(), model_.tensors_.end(),
                                     [&](const Tensor& candidate) { return candidate.name == name; });
    const memory::desc layout(tensor->shape, kFloat, tag);
    return {memory(layout, model_.engine_, model_.parameters().data() + tensor->offset),
            memory(layout, model_.engine_, model_.gradients().data() + tensor->offset), tensor->offset};
  }

  void add(std::string name, dnnl::primitive primitive, Arguments arguments) {
    pass_.forward.push_back({std::move(name), std::move(primitive), std::move(arguments)});
  }

  static Call reorder(const std::string& name, const memory& from, const memory& to) {
    return {name + " reorder", dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
  }

  /// `from` itself when it has that layout, otherwise a copy that has, and the call that fills it.
  memory reordered(const std::string& name, const memory& from, const memory::desc& layout, std::vector<Call>& calls) {
    if (from.get_desc() == layout) return from;
    const memory to = make(layout);
    calls.push_back(reorder(name, from, to));
    return to;
  }

  /// Clears the gradient where the ReLU gave 0, in place.
  Call relu_backward(const std::string& name, const Edge& out) {
    constexpr auto kRelu = algorithm::eltwise_relu_use_dst_for_bwd;
    const memory::desc layout = out.value.get_desc();
    const dnnl::eltwise_forward::primitive_desc forward({kind_, kRelu, layout, 0.0f}, model_.engine_);
    const dnnl::eltwise_backward::primitive_desc backward({kRelu, layout, layout, 0.0f}, model_.engine_, forward);
    return {name + " relu backward",
            dnnl::eltwise_backward(backward),
            {{DNNL_ARG_DST, out.value}, {DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_DIFF_SRC, out.gradient}}};
  }

  /// Images become vectors of features, ordered (row, column, channel).
  void flatten() {
    if (here_.value.get_desc().dims().size() == 2) return;
    const memory::dims shape = here_.value.get_desc().dims();
    const memory::desc rows_first(shape, kFloat, Tag::nhwc);
    const memory value = reordered("flatten", here_.value, rows_first, pass_.forward);
    memory gradient = here_.gradient;
    if (gradient && gradient.get_desc() != rows_first) {
      gradient = make(rows_first);
      groups_.push_back({reorder("flatten gradient", gradient, here_.gradient)});
    }
    const memory::desc flat({shape[0], shape[1] * shape[2] * shape[3]}, kFloat, Tag::nc);
    here_ = {seen_as(flat, value), gradient ? seen_as(flat, gradient) : memory()};
  }

  Model& model_;
  Pass& pass_;
  const prop_kind kind_;
  const memory::dim images_;
  Edge here_;                              // the output of the layers so far
  std::vector<std::vector<Call>> groups_;  // backward calls, by layer
};

Block::Block(std::size_t bytes) {
  constexpr std::size_t kLine = 64, kLargePage = 2 << 20;
  const std::size_t alignment = bytes < kLargePage / 4 ? kLine : kLargePage;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_.reset(std::aligned_alloc(alignment, rounded));
  if (!data_) throw std::bad_alloc();
  if (alignment == kLargePage) ::madvise(data_.get(), rounded, MADV_HUGEPAGE);  // a wish: no harm if it is not granted
  std::memset(data_.get(), 0, bytes);
}

Model::Model(std::string_view name, std::uint64_t seed)
    : name_(name),
      tensors_(tensors_of(name)),
      parameters_(parameter_count() * sizeof(float)),
      gradients_(parameter_count() * sizeof(float)) {
  omp_set_num_threads(1);  // of this thread, before oneDNN plans anything
  engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
  stream_ = dnnl::stream(engine_);

  for (const Tensor& tensor : tensors_) {
    if (tensor.shape.size() == 1) continue;  // a bias
    // The fans of a kernel count its taps. He before a ReLU, Glorot where the logits come out.
    const auto taps = static_cast<double>(tensor.count) / static_cast<double>(tensor.shape[0] * tensor.shape[1]);
    const double fan_in = taps * static_cast<double>(tensor.shape[1]);
    const double fan_out = tensor.offset == layer_offsets().back() ? taps * static_cast<double>(tensor.shape[0]) : 0.0;
    const auto limit = static_cast<float>(std::sqrt(6.0 / (fan_in + fan_out)));
    Random random(seed, 0x77656967687473, tensor.offset);
    for (float& weight : parameters().subspan(tensor.offset, tensor.count)) weight = random.uniform(-limit, limit);
  }
}

std::vector<std::size_t> Model::layer_offsets() const {
  std::vector<std::size_t> offsets;
  for (const Tensor& tensor : tensors_)
    if (tensor.shape.size() > 1) offsets.push_back(tensor.offset);  // a kernel; its bias follows
  return offsets;
}

Pass& Model::pass(std::size_t images, prop_kind kind) {
  std::unique_ptr<Pass>& known = passes_[{images, kind}];
  if (known) return *known;
  auto pass = std::make_unique<Pass>();
  pass->images = images;
  PassBuilder builder(*this, *pass, kind);
  if (name_ == "cnn") {
    builder.convolution("convolution");
    builder.max_pool_relu("pool");
  }
  if (name_ != "softmax") builder.dense("dense_1", true);
  builder.dense(name_ == "softmax" ? "dense" : "dense_2", false);
  builder.finish();
  known = std::move(pass);
  return *known;
}

}  // namespace mnist
