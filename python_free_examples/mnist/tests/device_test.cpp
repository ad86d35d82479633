// Tests that all devices give the results of the CPU. The devices are a GPU, if the machine has one, and a simulated
// GPU. The simulated GPU is the code for GPUs, compiled with replacements of CUDA, cuBLAS and cuDNN that run on a CPU
// (fake_cuda/).
#include "device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "accumulator.hpp"
#include "checkpoint.hpp"
#include "cuda_runtime.h"
#include "files.hpp"
#include "gpu/component.hpp"
#include "model.hpp"
#include "optimizer.hpp"
#include "random.hpp"
#include "support/ranks.hpp"
#include "synthetic.hpp"
#include "trainer.hpp"

namespace mnist {
namespace {

using testing::Folder;
using testing::message_of;

std::unique_ptr<Device> fake_cuda_device(std::string* why_not = nullptr) {
  char text[256] = "";
  std::unique_ptr<Device> device(mnist_cuda_device(0, text, sizeof text));
  if (why_not != nullptr) *why_not = text;
  return device;
}

std::vector<float> drawn(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.uniform(-1.0f, 1.0f);
  return values;
}

/// Expects that the values differ from the expected ones by at most a fraction of the largest value.
void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-5f * largest + 1e-7f) << i;
}

class EveryDevice : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (GetParam() == "fake_cuda") {
      device_ = fake_cuda_device();
      ASSERT_NE(device_, nullptr);
      return;
    }
    const std::string why_not = message_of<std::runtime_error>([&] { device_ = load_cuda_device(0); });
    if (device_) return;
#ifdef MNIST_HAS_CUDA
    ASSERT_NE(why_not.find("no CUDA device"), std::string::npos) << why_not;
    GTEST_SKIP() << "skipped: no CUDA device";
#else
    GTEST_SKIP() << "skipped: built without CUDA or cuDNN";
#endif
  }

  /// Copies a vector from CPU memory to the device.
  Vector there(const std::vector<float>& values) {
    const Vector copy = device_->make(values.size());
    device_->write(values, copy.span());
    return copy;
  }
  std::vector<float> here(const Vector& values) { return device_->on_host(values.span()); }

  static constexpr std::size_t kImages = 5;
  static void fill(Pass& pass, std::uint64_t seed) {
    Random random(seed);
    for (float& pixel : pass.pixels) pixel = random.uniform();
    for (std::uint8_t& label : pass.labels) label = static_cast<std::uint8_t>(random.below(kClasses));
  }

  std::unique_ptr<Device> device_;
};

TEST_P(EveryDevice, VectorsBeginWithZerosAndHoldWhatIsWritten) {
  const Vector vector = device_->make(1000), other = device_->make(1000);
  EXPECT_EQ(here(vector), std::vector<float>(1000));
  const std::vector<float> values = drawn(1000, 1);
  device_->write(values, vector.span());
  device_->copy(vector.span(), other.span());
  device_->clear(vector.span().subspan(0, 10));
  EXPECT_EQ(here(other), values);
  std::vector<float> partly = values;
  std::fill_n(partly.begin(), 10, 0.0f);
  EXPECT_EQ(here(vector), partly);
}

TEST_P(EveryDevice, ModelsBeginWithTheWeightsOfTheProcessor) {
  for (const std::string_view name : kModelNames) {
    const Model theirs(name, 7, *device_), ours(name, 7);
    EXPECT_EQ(device_->on_host(theirs.parameters()), processor().on_host(ours.parameters()));
  }
}

TEST_P(EveryDevice, ScoresAndGradientsAreThoseOfTheProcessor) {
  for (const std::string_view name : kModelNames) {
    SCOPED_TRACE(name);
    Model theirs(name, 7, *device_), ours(name, 7);
    // Adds random numbers to all parameters, so that biases are not zero and a missing bias is detected.
    std::vector<float> weights = processor().on_host(ours.parameters()), shifts = drawn(weights.size(), 3);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += 0.02f * shifts[i];
    device_->write(weights, theirs.parameters());
    processor().write(weights, ours.parameters());
    for (const std::uint64_t seed : {1u, 2u}) {  // the second pass reuses the buffers of the first
      Pass *const pass = &theirs.training_pass(kImages), *const expected = &ours.training_pass(kImages);
      for (auto [model, made] : {std::pair(&theirs, pass), std::pair(&ours, expected)}) {
        fill(*made, seed);
        model->forward(*made);
        made->loss(0.25f);
        model->backward(*made, [](std::size_t) {});
      }
      const Score score = pass->score(), wanted = expected->score();
      EXPECT_NEAR(score.loss, wanted.loss, 1e-5 * wanted.loss);
      EXPECT_EQ(score.correct, wanted.correct);
      expect_near(device_->on_host(pass->logits), processor().on_host(expected->logits));
      for (const Tensor& tensor : ours.tensors()) {  // each tensor has its own tolerance
        SCOPED_TRACE(tensor.name);
        expect_near(device_->on_host(theirs.gradients().subspan(tensor.offset, tensor.count)),
                    processor().on_host(ours.gradients().subspan(tensor.offset, tensor.count)));
      }
    }
  }
}

TEST_P(EveryDevice, GradientsAreFinalWhenTheyAreSaidToBe) {
  for (const std::string_view name : kModelNames) {
    Model model(name, 7, *device_);
    Pass& pass = model.training_pass(kImages);
    fill(pass, 1);
    model.forward(pass);
    pass.loss(1.0f);
    device_->write(std::vector<float>(model.parameter_count(), 12345.0f), model.gradients());
    std::vector<std::size_t> froms;
    model.backward(pass, [&](std::size_t from) {
      if (from < model.parameter_count() && (froms.empty() || froms.back() != from)) froms.push_back(from);
      EXPECT_EQ(std::ranges::count(device_->on_host(model.gradients().subspan(from)), 12345.0f), 0);
    });
    std::vector<std::size_t> layers = model.layer_offsets();
    std::ranges::reverse(layers);
    EXPECT_EQ(froms, layers) << name;
  }
}

TEST_P(EveryDevice, EqualStepsGiveEqualBits) {
  for (const std::string_view name : kModelNames) {
    std::vector<std::vector<float>> gradients;
    for (int run = 0; run < 2; ++run) {
      Model model(name, 7, *device_);
      Pass& pass = model.training_pass(kImages);
      fill(pass, 1);
      model.forward(pass);
      pass.loss(1.0f);
      model.backward(pass, [](std::size_t) {});
      gradients.push_back(device_->on_host(model.gradients()));
    }
    EXPECT_EQ(gradients[0], gradients[1]) << name;
  }
}

TEST_P(EveryDevice, UpdatesAreThoseOfTheProcessorBitForBit) {
  constexpr std::size_t kCount = 10'007;
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam}) {
    Optimizer theirs(kind, kCount, *device_), ours(kind, kCount);
    std::vector<float> weights = drawn(kCount, 1);
    const Vector their_weights = there(weights);
    for (std::uint64_t t = 2; t < 6; ++t) {
      const std::vector<float> gradients = drawn(kCount, t);
      const Vector their_gradients = there(gradients);
      theirs.apply(their_weights.span(), their_gradients.span(), 0.013f);
      ours.apply(weights, gradients, 0.013f);
    }
    EXPECT_EQ(here(their_weights), weights) << ours.name();
    EXPECT_EQ(device_->on_host(theirs.state()), processor().on_host(ours.state())) << ours.name();
  }
}

TEST_P(EveryDevice, BatchesAddUp) {
  constexpr std::size_t kCount = 1000;
  const Vector gradients = device_->make(kCount);
  Accumulator accumulator(*device_, gradients.span());
  std::vector<float> sum(kCount);
  for (int step = 0; step < 2; ++step) {
    for (std::uint64_t batch = 1; batch <= 3; ++batch) {
      const std::vector<float> values = drawn(kCount, batch);
      device_->write(values, gradients.span());
      if (batch < 3) accumulator.keep();
      for (std::size_t i = 0; i < kCount; ++i)
        sum[i] = batch == 1 ? values[i] : batch == 2 ? sum[i] + values[i] : values[i] + sum[i];
    }
    accumulator.release(600);
    accumulator.release(0);
    EXPECT_EQ(here(gradients), sum);
  }
}

TEST_P(EveryDevice, ACheckpointGoesFromTheDeviceToTheProcessorAndBack) {
  const RunIdentity run{.seed = 7, .batch = 64};
  Model theirs("mlp", 7, *device_), ours("mlp", 8), again("mlp", 9, *device_);
  Optimizer their_optimizer(OptimizerKind::adam, theirs.parameter_count(), *device_),
      our_optimizer(OptimizerKind::adam, ours.parameter_count()),
      other_optimizer(OptimizerKind::adam, ours.parameter_count(), *device_);
  device_->write(drawn(theirs.parameter_count(), 4), theirs.gradients());
  their_optimizer.apply(theirs.parameters(), theirs.gradients(), 0.01f);
  const Position position{0, 1, 1, {}, 0};
  const std::string file = pack_checkpoint(theirs, their_optimizer, run, position);
  unpack_checkpoint(file, "file", run, ours, our_optimizer);
  EXPECT_EQ(pack_checkpoint(ours, our_optimizer, run, position), file);
  unpack_checkpoint(file, "file", run, again, other_optimizer);
  EXPECT_EQ(pack_checkpoint(again, other_optimizer, run, position), file);
  EXPECT_EQ(device_->on_host(again.parameters()), processor().on_host(ours.parameters()));
}

TEST_P(EveryDevice, WaitingCallsTheGivenFunction) {
  const Vector vector = device_->make(100);
  device_->clear(vector.span());
  int times = 0;
  wait_for(*device_, [&] { ++times; });
  EXPECT_TRUE(device_->idle());
  if (GetParam() == "fake_cuda") {
    EXPECT_GT(times, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryDevice, ::testing::Values("fake_cuda", "cuda"),
                         [](const auto& device) { return std::string(device.param); });

/// While an object of this class exists, the simulated GPU performs each call at once, and the CPU can access its
/// memory.
class Eager {
 public:
  Eager() { fake_cuda::machine().eager = true; }
  ~Eager() { fake_cuda::machine().eager = false; }
};

/// Simulated GPU that declares its memory as CPU memory. The collectives of ranks that are threads can then use that
/// memory.
class Hosted : public Device {
 public:
  Hosted() : device_(fake_cuda_device()) {}
  std::string_view name() const override { return device_->name(); }
  std::string description() const override { return device_->description(); }
  std::optional<void*> stream() const override { return {}; }
  Vector make(std::size_t count) override { return device_->make(count); }
  void clear(std::span<float> values) override { device_->clear(values); }
  void copy(std::span<const float> from, std::span<float> to) override { device_->copy(from, to); }
  void read(std::span<const float> from, std::span<float> to) override { device_->read(from, to); }
  void write(std::span<const float> from, std::span<float> to) override { device_->write(from, to); }
  void add(std::span<const float> more, std::span<float> sum) override { device_->add(more, sum); }
  void update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients, std::span<float> state,
              float rate) override {
    device_->update(kind, weights, gradients, state, rate);
  }
  std::unique_ptr<PassBuilder> build(std::size_t images, bool training) override {
    return device_->build(images, training);
  }
  bool idle() override { return device_->idle(); }

 private:
  std::unique_ptr<Device> device_;
};

std::vector<float> train(int ranks, bool on_fake_cuda, const TrainerOptions& options) {
  static const Data data = draw_digits(103, 31, 1);
  std::vector<float> weights;
  collectives::testing::run_communicators(ranks, [&](collectives::Communicator& comm) {
    Hosted hosted;
    Device& device = on_fake_cuda ? static_cast<Device&>(hosted) : processor();
    Model model("cnn", 1, device);
    Optimizer optimizer(OptimizerKind::momentum, model.parameter_count(), device);
    Report report({}, true);
    Trainer trainer(comm, data, options, model, optimizer, report);
    trainer.run();
    if (comm.rank() == 0) weights = device.on_host(model.parameters());
  });
  return weights;
}

TEST(TrainingOnADevice, FollowsTheTrainingOnTheProcessor) {
  const Eager eager;
  TrainerOptions options;
  options.batch = 20;  // the last batch has 3 images
  options.schedule = Schedule(0.01f);
  options.bucket_bytes = 100'000;
  for (const int ranks : {1, 2}) {
    for (const std::size_t steps : {1u, 2u}) {
      options.local_steps = steps;
      options.accumulate = 3 - steps;
      options.overlap = steps == 1;
      const std::vector<float> expected = train(ranks, false, options), got = train(ranks, true, options);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
    }
  }
}

TEST(CudaDevice, WhereThereIsNoneItSaysSo) {
  fake_cuda::machine().devices = 0;
  std::string why_not;
  EXPECT_EQ(fake_cuda_device(&why_not), nullptr);
  fake_cuda::machine().devices = 1;
  EXPECT_EQ(why_not, "no CUDA device: no CUDA-capable device is detected");
}

TEST(CudaDevice, ProcessesOfOneMachineTakeTurns) {
  fake_cuda::machine().devices = 3;
  char why_not[256] = "";
  for (const int local_rank : {0, 2, 7}) {
    const std::unique_ptr<Device> device(mnist_cuda_device(local_rank, why_not, sizeof why_not));
    EXPECT_NE(device, nullptr);
    EXPECT_EQ(fake_cuda::machine().current, local_rank % 3);
  }
  fake_cuda::machine().devices = 1;
}

TEST(Pooling, EveryWindowHasACornerAndAFeatureOfItsOwn) {
  constexpr Pooling kShape{3, 4, 5};
  constexpr std::size_t kImages = 2, kWindows = kImages * 3 * 4 * 5;
  std::set<std::size_t> features, values;
  for (std::size_t i = 0; i < kWindows; ++i) {
    features.insert(kShape.feature(i));
    for (unsigned place = 0; place < 4; ++place) values.insert(kShape.corner(i) + place_in_window(place, 10));
  }
  EXPECT_EQ(features.size(), kWindows);
  EXPECT_EQ(*features.rbegin(), kWindows - 1);
  EXPECT_EQ(values.size(), 4 * kWindows);
  EXPECT_EQ(*values.rbegin(), 4 * kWindows - 1);
  // Image 1, channel 2, row 3, column 4 of the windows.
  const std::size_t window = ((1 * 3 + 2) * 4 + 3) * 5 + 4;
  EXPECT_EQ(kShape.corner(window), ((1 * 3 + 2) * 8 + 6) * 10 + 8);
  EXPECT_EQ(kShape.feature(window), ((1 * 4 + 3) * 5 + 4) * 3 + 2);
}

TEST(Pooling, OfEqualsTheFirstIsTheLargest) {
  const float picture[] = {1, 2, 2, 0, -1, -1, -1, -1};
  EXPECT_EQ(look_into_window(picture, 2).place, 1);
  EXPECT_EQ(look_into_window(picture + 4, 2).place, 0);
  EXPECT_EQ(look_into_window(picture + 4, 2).largest, -1);
}

}  // namespace
}  // namespace mnist
