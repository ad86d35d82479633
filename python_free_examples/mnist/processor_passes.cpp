// Forward and backward passes of a model on the CPU. A pass is a list of calls of oneDNN, a library.
//
// Each layer appends its forward calls to the list. Its backward calls form a group, and the groups run in the reverse
// order of the layers. For each layer, oneDNN selects the layout of its input and output in memory. If two neighbouring
// layers use different layouts, a call that converts one to the other (a reorder) is inserted.
#include <omp.h>

#include <algorithm>
#include <iterator>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "dataset.hpp"
#include "processor.hpp"

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

struct OnednnPass : Pass {
  std::vector<Vector> buffers;  // memory that the calls read and write
  std::vector<std::uint8_t> label_buffer;
  Score last;

  void loss(float weight) override { last = cross_entropy(logits, labels, weight, logit_gradients); }
  Score score() override { return last; }
};

class OnednnBuilder : public PassBuilder {
 public:
  OnednnBuilder(std::size_t images, prop_kind kind) : kind_(kind), images_(static_cast<memory::dim>(images)) {
    omp_set_num_threads(1);  // limits this thread only; must precede all calls of oneDNN
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream_ = dnnl::stream(engine_);
    here_.value = make({{images_, kPixels}, kFloat, Tag::nc});
    pass_->images = images;
    pass_->pixels = view(here_.value);
    pass_->label_buffer.resize(images);
    pass_->labels = pass_->label_buffer;
  }

  void convolution(const Layer& layer) override {
    const std::string& name = layer.name;
    const Parameter kernel = kernel_of(layer, Tag::oihw), bias = bias_of(layer);
    const memory::dims one = {1, 1}, none = {0, 0};
    const memory::dim channels = kernel.value.get_desc().dims()[0], rows = kSide - 2, columns = kSide - 2;
    const memory::desc source({images_, 1, kSide, kSide}, kFloat, Tag::nchw);
    const memory::desc any_kernel = any(kernel.value), bias_layout = bias.value.get_desc();
    const memory::desc any_output({images_, channels, rows, columns}, kFloat, Tag::any);

    const dnnl::convolution_forward::primitive_desc forward(
        {kind_, algorithm::convolution_direct, source, any_kernel, bias_layout, any_output, one, none, none}, engine_);
    // No call reads the output of the convolution after the pool, so the gradient of that output uses the same memory.
    const memory output = make(forward.dst_desc());
    const Edge in = {seen_as(source, here_.value), {}}, out = {output, output};
    const memory chosen_kernel = reordered(name + " kernel", kernel.value, forward.weights_desc(), pass_->forward);
    add(name + " forward", dnnl::convolution_forward(forward),
        {{DNNL_ARG_SRC, in.value},
         {DNNL_ARG_WEIGHTS, chosen_kernel},
         {DNNL_ARG_BIAS, bias.value},
         {DNNL_ARG_DST, out.value}});
    here_ = out;
    if (!training()) return;

    // oneDNN selects the layout for the gradient of the output. The layout may differ from that of the output: with
    // AVX2, the fast code for images with one channel needs another one.
    const dnnl::convolution_backward_weights::primitive_desc weights(
        {algorithm::convolution_direct, source, any_kernel, bias_layout, any_output, one, none, none}, engine_,
        forward);
    const bool plain = weights.diff_weights_desc() == kernel.gradient.get_desc();
    const memory kernel_gradient = plain ? kernel.gradient : make(weights.diff_weights_desc());
    std::vector<Call> group;
    const memory output_gradient = reordered(name + " output gradient", out.gradient, weights.diff_dst_desc(), group);
    group.push_back(call(name + " backward weights", dnnl::convolution_backward_weights(weights),
                         {{DNNL_ARG_SRC, in.value},
                          {DNNL_ARG_DIFF_DST, output_gradient},
                          {DNNL_ARG_DIFF_WEIGHTS, kernel_gradient},
                          {DNNL_ARG_DIFF_BIAS, bias.gradient}}));
    if (!plain) group.push_back(reorder(name + " kernel gradient", kernel_gradient, kernel.gradient));
    group.back().gradients_from = layer.offset;
    groups_.push_back(std::move(group));  // this is the first layer, so nothing needs the gradient of its input
  }

  void max_pool_relu(const std::string& name) override {
    const memory::dims two = {2, 2}, none = {0, 0}, shape = here_.value.get_desc().dims();
    const memory::desc source = here_.value.get_desc();
    const memory::desc any_output({shape[0], shape[1], shape[2] / 2, shape[3] / 2}, kFloat, Tag::any);

    const dnnl::pooling_forward::primitive_desc forward(
        {kind_, algorithm::pooling_max, source, any_output, two, two, none, none}, then_relu(), engine_);
    const Edge in = here_, out = edge(forward.dst_desc());
    Arguments arguments = {{DNNL_ARG_SRC, in.value}, {DNNL_ARG_DST, out.value}};
    // positions of the maxima, for the backward pass
    const memory places = training() ? make(forward.workspace_desc()) : memory();
    if (training()) arguments.emplace(DNNL_ARG_WORKSPACE, places);
    add(name + " forward", dnnl::pooling_forward(forward), std::move(arguments));
    here_ = out;
    if (!training()) return;

    const dnnl::pooling_backward::primitive_desc backward(
        {algorithm::pooling_max, source, forward.dst_desc(), two, two, none, none}, engine_, forward);
    groups_.push_back(
        {relu_backward(name, out),
         call(name + " backward", dnnl::pooling_backward(backward),
              {{DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_WORKSPACE, places}, {DNNL_ARG_DIFF_SRC, in.gradient}})});
  }

  void dense(const Layer& layer, bool relu) override {
    flatten();
    const std::string& name = layer.name;
    const Parameter kernel = kernel_of(layer, Tag::oi), bias = bias_of(layer);
    const memory::desc source = here_.value.get_desc(), kernel_layout = kernel.value.get_desc(),
                       bias_layout = bias.value.get_desc();
    const memory::desc output({images_, kernel_layout.dims()[0]}, kFloat, Tag::nc);

    const dnnl::inner_product_forward::primitive_desc forward({kind_, source, kernel_layout, bias_layout, output},
                                                              relu ? then_relu() : dnnl::primitive_attr(), engine_);
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
                                                                       engine_, forward);
    group.push_back(call(name + " backward weights", dnnl::inner_product_backward_weights(weights),
                         {{DNNL_ARG_SRC, in.value},
                          {DNNL_ARG_DIFF_DST, out.gradient},
                          {DNNL_ARG_DIFF_WEIGHTS, kernel.gradient},
                          {DNNL_ARG_DIFF_BIAS, bias.gradient}}));
    group.back().gradients_from = layer.offset;
    if (in.gradient) {
      const dnnl::inner_product_backward_data::primitive_desc data({source, kernel_layout, output}, engine_, forward);
      group.push_back(call(
          name + " backward data", dnnl::inner_product_backward_data(data),
          {{DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_WEIGHTS, kernel.value}, {DNNL_ARG_DIFF_SRC, in.gradient}}));
    }
    groups_.push_back(std::move(group));
  }

  std::unique_ptr<Pass> finish() override {
    pass_->logits = view(here_.value);
    if (training()) pass_->logit_gradients = view(here_.gradient);
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
      std::move(group->begin(), group->end(), std::back_inserter(pass_->backward));
    return std::move(pass_);
  }

 private:
  using Arguments = std::unordered_map<int, memory>;
  /// Values between two layers, and their gradient, which is empty if no call needs it.
  struct Edge {
    memory value, gradient;
  };
  struct Parameter {
    memory value, gradient;
  };

  bool training() const { return kind_ == prop_kind::forward_training; }
  memory make(const memory::desc& layout) {
    const std::size_t floats = (layout.get_size() + sizeof(float) - 1) / sizeof(float);
    return {layout, engine_, pass_->buffers.emplace_back(processor().make(floats)).span().data()};
  }
  /// Returns an object that describes the memory of `buffer` with another shape or layout. Copies nothing.
  memory seen_as(const memory::desc& layout, const memory& buffer) {
    return {layout, engine_, buffer.get_data_handle()};
  }
  Edge edge(const memory::desc& layout) { return {make(layout), training() ? make(layout) : memory()}; }
  static memory::desc any(const memory& like) { return {like.get_desc().dims(), kFloat, Tag::any}; }

  Parameter kernel_of(const Layer& layer, Tag tag) {
    const memory::desc layout(layer.kernel_shape, kFloat, tag);
    return {memory(layout, engine_, layer.kernel.data()), memory(layout, engine_, layer.kernel_gradient.data())};
  }
  Parameter bias_of(const Layer& layer) {
    const memory::desc layout({layer.kernel_shape[0]}, kFloat, Tag::x);
    return {memory(layout, engine_, layer.bias.data()), memory(layout, engine_, layer.bias_gradient.data())};
  }

  Call call(std::string name, dnnl::primitive primitive, Arguments arguments) {
    return {std::move(name), [primitive = std::move(primitive), arguments = std::move(arguments), stream = stream_] {
              primitive.execute(stream, arguments);
            }};
  }
  void add(std::string name, dnnl::primitive primitive, Arguments arguments) {
    pass_->forward.push_back(call(std::move(name), std::move(primitive), std::move(arguments)));
  }

  Call reorder(const std::string& name, const memory& from, const memory& to) {
    return call(name + " reorder", dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  /// Returns `from` if it has that layout. Otherwise returns a copy and adds the call that fills it.
  memory reordered(const std::string& name, const memory& from, const memory::desc& layout, std::vector<Call>& calls) {
    if (from.get_desc() == layout) return from;
    const memory to = make(layout);
    calls.push_back(reorder(name, from, to));
    return to;
  }

  /// Returns the call that clears the gradient at elements with the ReLU's output 0, in place.
  Call relu_backward(const std::string& name, const Edge& out) {
    constexpr auto kRelu = algorithm::eltwise_relu_use_dst_for_bwd;
    const memory::desc layout = out.value.get_desc();
    const dnnl::eltwise_forward::primitive_desc forward({kind_, kRelu, layout, 0.0f}, engine_);
    const dnnl::eltwise_backward::primitive_desc backward({kRelu, layout, layout, 0.0f}, engine_, forward);
    return call(name + " relu backward", dnnl::eltwise_backward(backward),
                {{DNNL_ARG_DST, out.value}, {DNNL_ARG_DIFF_DST, out.gradient}, {DNNL_ARG_DIFF_SRC, out.gradient}});
  }

  /// Turns images into vectors of features in the order (row, column, channel).
  void flatten() {
    if (here_.value.get_desc().dims().size() == 2) return;
    const memory::dims shape = here_.value.get_desc().dims();
    const memory::desc rows_first(shape, kFloat, Tag::nhwc);
    const memory value = reordered("flatten", here_.value, rows_first, pass_->forward);
    memory gradient = here_.gradient;
    if (gradient && gradient.get_desc() != rows_first) {
      gradient = make(rows_first);
      groups_.push_back({reorder("flatten gradient", gradient, here_.gradient)});
    }
    const memory::desc flat({shape[0], shape[1] * shape[2] * shape[3]}, kFloat, Tag::nc);
    here_ = {seen_as(flat, value), gradient ? seen_as(flat, gradient) : memory()};
  }

  const prop_kind kind_;
  const memory::dim images_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unique_ptr<OnednnPass> pass_ = std::make_unique<OnednnPass>();
  Edge here_;                              // output of the last layer that was added
  std::vector<std::vector<Call>> groups_;  // backward calls, by layer
};

}  // namespace

std::unique_ptr<PassBuilder> build_with_onednn(std::size_t images, bool training) {
  return std::make_unique<OnednnBuilder>(images, training ? prop_kind::forward_training : prop_kind::forward_inference);
}

}  // namespace mnist
