// Tests of the models that the trainer trains. A simple forward pass in double gives the expected results. Its logits
// are the expected logits, and its finite differences are the expected gradients.
#include "model.hpp"

#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dataset.hpp"
#include "loss.hpp"
#include "random.hpp"

namespace mnist {
namespace {

using Vector = std::vector<double>;

/// Computes a dense layer for one image: kernel x + bias. If `relu` is set, also applies a ReLU.
Vector dense(const Vector& x, const double* kernel, const double* bias, std::size_t outputs, bool relu) {
  Vector y(bias, bias + outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += kernel[o * x.size() + i] * x[i];
    if (relu) y[o] = std::max(y[o], 0.0);
  }
  return y;
}

/// Computes a convolution, then a ReLU, then a pool. The trainer performs ReLU and pool in the other order, with the
/// same result. The features are ordered by row, column and channel.
Vector convolution_relu_pool(const Vector& pixels, const double* kernel, const double* bias) {
  Vector features(13 * 13 * 32, 0.0);
  for (std::size_t channel = 0; channel < 32; ++channel)
    for (std::size_t row = 0; row < 26; ++row)
      for (std::size_t column = 0; column < 26; ++column) {
        double sum = bias[channel];
        for (std::size_t y = 0; y < 3; ++y)
          for (std::size_t x = 0; x < 3; ++x)
            sum += kernel[channel * 9 + y * 3 + x] * pixels[(row + y) * kSide + column + x];
        double& pooled = features[((row / 2) * 13 + column / 2) * 32 + channel];
        pooled = std::max({pooled, sum, 0.0});
      }
  return features;
}

struct Reference {
  const Model& model;
  Vector parameters;  // parameters of the model, in double

  explicit Reference(const Model& of) : model(of), parameters(of.parameters().begin(), of.parameters().end()) {}

  const double* at(std::size_t tensor) const { return parameters.data() + model.tensors()[tensor].offset; }
  Vector logits(const Vector& pixels) const {
    if (model.name() == "softmax") return dense(pixels, at(0), at(1), 10, false);
    if (model.name() == "mlp") return dense(dense(pixels, at(0), at(1), 128, true), at(2), at(3), 10, false);
    const Vector features = convolution_relu_pool(pixels, at(0), at(1));
    return dense(dense(features, at(2), at(3), 64, true), at(4), at(5), 10, false);
  }
  double mean_loss(const std::vector<Vector>& images, const std::vector<std::uint8_t>& labels) const {
    double loss = 0;
    for (std::size_t i = 0; i < images.size(); ++i) {
      const Vector x = logits(images[i]);
      double sum = 0;
      for (const double logit : x) sum += std::exp(logit);
      loss += std::log(sum) - x[labels[i]];
    }
    return loss / static_cast<double>(images.size());
  }
};

class EveryModel : public ::testing::TestWithParam<std::string_view> {
 protected:
  static constexpr std::size_t kImages = 3;

  EveryModel() {
    Random random(11);
    // parameters include biases, which would otherwise be zero
    for (float& parameter : model_.parameters()) parameter += random.uniform(-0.02f, 0.02f);
    for (std::size_t i = 0; i < kImages; ++i) {
      images_.emplace_back();
      for (std::size_t j = 0; j < kPixels; ++j) images_.back().push_back(random.uniform());
      labels_.push_back(static_cast<std::uint8_t>(random.below(kClasses)));
    }
  }
  void fill(std::span<float> pixels) const {
    for (std::size_t i = 0; i < kImages; ++i) std::ranges::copy(images_[i], pixels.subspan(i * kPixels).begin());
  }

  Model model_{GetParam(), 5};
  std::vector<Vector> images_;
  std::vector<std::uint8_t> labels_;
};

TEST_P(EveryModel, LogitsAreThoseOfTheNaiveForwardPass) {
  const Reference reference(model_);
  for (const Pass* pass : {&model_.training_pass(kImages), &model_.inference_pass(kImages)}) {
    fill(pass->pixels);
    model_.forward(*pass);
    for (std::size_t i = 0; i < kImages; ++i) {
      const Vector expected = reference.logits(images_[i]);
      for (std::size_t c = 0; c < kClasses; ++c) EXPECT_NEAR(pass->logits[i * kClasses + c], expected[c], 2e-4);
    }
  }
}

TEST_P(EveryModel, GradientsAreFiniteDifferencesOfTheLoss) {
  const Pass& pass = model_.training_pass(kImages);
  fill(pass.pixels);
  model_.forward(pass);
  cross_entropy(pass.logits, labels_, 1.0f / kImages, pass.logit_gradients);
  model_.backward(pass, [](std::size_t) {});

  Reference reference(model_);
  Random random(7);
  constexpr double kStep = 1e-5;
  for (const Tensor& tensor : model_.tensors())
    for (int sample = 0; sample < 8; ++sample) {
      const std::size_t index = tensor.offset + random.below(tensor.count);
      double& parameter = reference.parameters[index];
      const double before = parameter;
      parameter = before + kStep;
      const double above = reference.mean_loss(images_, labels_);
      parameter = before - kStep;
      const double below = reference.mean_loss(images_, labels_);
      parameter = before;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(model_.gradients()[index], expected, 1e-5 + 2e-3 * std::abs(expected)) << tensor.name << " " << index;
    }
}

TEST_P(EveryModel, GradientsBecomeReadyFromTheLastLayerToTheFirst) {
  const Pass& pass = model_.training_pass(kImages);
  fill(pass.pixels);
  model_.forward(pass);
  cross_entropy(pass.logits, labels_, 1.0f, pass.logit_gradients);
  std::ranges::fill(model_.gradients(), 12345.0f);
  std::vector<std::size_t> steps;
  model_.backward(pass, [&](std::size_t from) {
    if (steps.empty() || steps.back() != from) steps.push_back(from);
    EXPECT_EQ(std::ranges::count(model_.gradients().subspan(from), 12345.0f), 0);
  });
  std::vector<std::size_t> layers = model_.layer_offsets();
  std::ranges::reverse(layers);
  if (steps.front() == model_.parameter_count()) steps.erase(steps.begin());
  EXPECT_EQ(steps, layers);
  EXPECT_EQ(steps.back(), 0u);
}

TEST_P(EveryModel, EqualSeedsGiveEqualWeights) {
  const Model first(GetParam(), 3), second(GetParam(), 3), other(GetParam(), 4);
  EXPECT_TRUE(std::ranges::equal(first.parameters(), second.parameters()));
  EXPECT_FALSE(std::ranges::equal(first.parameters(), other.parameters()));
}

TEST_P(EveryModel, BatchesOfEverySizeAgree) {
  const Pass& one = model_.inference_pass(1);
  const Pass& all = model_.inference_pass(kImages);
  fill(all.pixels);
  model_.forward(all);
  for (std::size_t i = 0; i < kImages; ++i) {
    std::ranges::copy(images_[i], one.pixels.begin());
    model_.forward(one);
    for (std::size_t c = 0; c < kClasses; ++c) EXPECT_NEAR(one.logits[c], all.logits[i * kClasses + c], 1e-4);
  }
}

/// Reads the implementation of each call in oneDNN's log. If oneDNN has no fast implementation for a layout, it uses
/// reference code without a warning. For a convolution, that code took 300 times as long.
TEST_P(EveryModel, NoCallRunsReferenceCode) {
  const Pass& pass = model_.training_pass(kImages);
  fill(pass.pixels);
  ASSERT_EQ(dnnl_set_verbose(1), dnnl_success);
  testing::internal::CaptureStdout();
  model_.forward(pass);
  cross_entropy(pass.logits, labels_, 1.0f, pass.logit_gradients);
  model_.backward(pass, [](std::size_t) {});
  const std::string log = testing::internal::GetCapturedStdout();
  dnnl_set_verbose(0);
  EXPECT_NE(log.find("backward_weights"), std::string::npos) << log;
  EXPECT_EQ(log.find(",ref"), std::string::npos) << log;
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(kModelNames),
                         [](const auto& model) { return std::string(model.param); });

TEST(Model, ParametersAreCountedAsInTheLecture) {
  EXPECT_EQ(Model("softmax", 1).parameter_count(), 7850u);
  EXPECT_EQ(Model("mlp", 1).parameter_count(), 101770u);
  EXPECT_EQ(Model("cnn", 1).parameter_count(), 347146u);
}

TEST(Model, AnUnknownNameListsTheKnownOnes) { EXPECT_THROW(Model("transformer", 1), std::invalid_argument); }

TEST(CrossEntropy, EqualLogitsCostTheLogarithmOfTen) {
  const std::vector<float> logits(kClasses, 3.0f);
  const std::vector<std::uint8_t> labels = {4};
  std::vector<float> gradients(kClasses);
  const Score score = cross_entropy(logits, labels, 2.0f, gradients);
  EXPECT_NEAR(score.loss, std::log(10.0), 1e-6);
  EXPECT_EQ(score.correct, 0u);  // of equal logits, the first one (digit 0) counts, and the label is another digit
  EXPECT_NEAR(gradients[4], 2.0f * (0.1f - 1.0f), 1e-6);
  EXPECT_NEAR(gradients[5], 2.0f * 0.1f, 1e-6);
}

TEST(CrossEntropy, HugeLogitsStayFinite) {
  std::vector<float> logits(kClasses, -1e30f);
  logits[2] = 1e30f;
  const std::vector<std::uint8_t> labels = {2};
  EXPECT_EQ(cross_entropy(logits, labels, 1.0f, {}).loss, 0.0);
}

}  // namespace
}  // namespace mnist
