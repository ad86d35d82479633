// Whole runs on drawn digits, with ranks that are threads.
#include "trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "files.hpp"
#include "replicas.hpp"
#include "support/ranks.hpp"
#include "synthetic.hpp"

namespace mnist {
namespace {

using collectives::Communicator;
using collectives::CommunicatorOptions;
using collectives::testing::run_communicators;
using testing::Folder;
using testing::message_of;
using testing::read_file;

const Data& digits() {
  static const Data data = draw_digits(203, 61, 1);
  return data;
}

struct RunSetup {
  std::string_view model = "softmax";
  OptimizerKind optimizer = OptimizerKind::sgd;
  TrainerOptions options = {};
  std::filesystem::path resume = {};
  std::filesystem::path loss_trace = {};
  CommunicatorOptions communicator = {};
  std::function<void(int rank, Model&)> before_run = [](int, Model&) {};
};

/// What rank 0 ends with.
struct Result {
  std::vector<float> parameters, state;
  Position position;
};

Result train(int ranks, const RunSetup& setup) {
  Result result;
  run_communicators(
      ranks,
      [&](Communicator& comm) {
        Model model(setup.model, setup.options.seed);
        Optimizer optimizer(setup.optimizer, model.parameter_count());
        Report report({.loss_trace = comm.rank() == 0 ? setup.loss_trace : ""}, true);
        Trainer trainer(comm, digits(), setup.options, model, optimizer, report);
        if (!setup.resume.empty()) trainer.resume(setup.resume);
        setup.before_run(comm.rank(), model);
        trainer.run();
        if (comm.rank() != 0) return;
        result.parameters.assign(model.parameters().begin(), model.parameters().end());
        result.state.assign(optimizer.state().begin(), optimizer.state().end());
        result.position = trainer.position();
      },
      setup.communicator);
  return result;
}

std::vector<double> losses(const std::filesystem::path& trace) {
  std::istringstream lines(read_file(trace));
  std::vector<double> losses;
  double step = 0, loss = 0;
  while (lines >> step >> loss) {
    EXPECT_EQ(step, static_cast<double>(losses.size()));
    losses.push_back(loss);
  }
  return losses;
}

TEST(Trainer, RanksFollowTheCurveOfOne) {
  const Folder folder;
  for (const std::string_view model : {"softmax", "mlp", "cnn"}) {
    RunSetup setup{.model = model};
    setup.options.batch = 50;  // the last batch has 3 images
    setup.options.epochs = 2;
    setup.options.schedule = Schedule(0.05f);
    setup.loss_trace = folder / "one";
    train(1, setup);
    const std::vector<double> alone = losses(folder / "one");
    EXPECT_EQ(alone.size(), 10u);
    for (const int ranks : {2, 4}) {
      setup.loss_trace = folder / "many";
      train(ranks, setup);
      const std::vector<double> together = losses(folder / "many");
      ASSERT_EQ(together.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-4 * alone[i]) << model << i;
    }
  }
}

TEST(Trainer, SomeRanksGetNoImages) {
  RunSetup setup;
  setup.options.batch = 2;
  setup.options.max_steps = 5;
  const Result alone = train(1, setup), together = train(3, setup);
  for (std::size_t i = 0; i < alone.parameters.size(); i += 13)
    EXPECT_NEAR(alone.parameters[i], together.parameters[i], 1e-5);
}

TEST(Trainer, OverlapChangesNoBit) {
  RunSetup setup{.model = "cnn", .optimizer = OptimizerKind::adam};
  setup.options.max_steps = 4;
  setup.options.bucket_bytes = 100'000;
  setup.options.overlap = true;
  const Result on = train(2, setup);
  setup.options.overlap = false;
  EXPECT_EQ(on.parameters, train(2, setup).parameters);
}

TEST(Trainer, BackendsGiveTheSameBitsWhenDeterministic) {
  RunSetup setup{.model = "mlp"};
  setup.options.max_steps = 6;
  setup.communicator.deterministic = true;
  setup.communicator.backend = "ring";
  const Result ring = train(3, setup);
  for (const char* backend : {"hierarchical", "reduce_to_one", "auto"}) {
    setup.communicator.backend = backend;
    EXPECT_EQ(ring.parameters, train(3, setup).parameters) << backend;
  }
}

TEST(Trainer, AContinuedRunHasTheBitsOfAnUnbrokenOne) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam})
    for (const int ranks : {1, 2})
      for (const std::size_t stop : {3u, 7u, 10u}) {  // inside the first and second epoch, and between two
        const Folder folder;
        RunSetup setup{.optimizer = kind};
        setup.options.batch = 50;
        setup.options.epochs = 3;
        const Result unbroken = train(ranks, setup);

        setup.options.checkpoint = folder / "run.ckpt";
        setup.options.max_steps = stop;
        EXPECT_EQ(train(ranks, setup).position.total_steps, stop);
        setup.options.max_steps = SIZE_MAX;
        setup.resume = folder / "run.ckpt";
        const Result continued = train(ranks, setup);
        EXPECT_EQ(continued.parameters, unbroken.parameters);
        EXPECT_EQ(continued.state, unbroken.state);
        EXPECT_EQ(continued.position.total_steps, unbroken.position.total_steps);
      }
}

TEST(Trainer, CheckpointsComeAtTheirCadence) {
  const Folder folder;
  RunSetup setup;
  setup.options.batch = 50;  // 5 steps an epoch
  setup.options.epochs = 2;
  setup.options.checkpoint = folder / "run.ckpt";
  setup.options.checkpoint_every = Cadence::parse("4steps");
  setup.before_run = [&](int, Model&) { EXPECT_FALSE(std::filesystem::exists(folder / "run.ckpt")); };
  setup.options.max_steps = 9;
  train(1, setup);
  Model model("softmax", 1);
  Optimizer optimizer(OptimizerKind::sgd, model.parameter_count());
  const RunIdentity identity{1, 50, digits().train.size(), digits().checksum()};
  const Position at = unpack_checkpoint(read_file(folder / "run.ckpt"), "run.ckpt", identity, model, optimizer);
  EXPECT_EQ(at.total_steps, 9u);
  EXPECT_EQ(at.epoch, 1u);
  EXPECT_EQ(at.step, 4u);
  EXPECT_EQ(at.images, 200u);
}

TEST(Trainer, ADamagedCheckpointEndsEveryRankAndIsNamedByOne) {
  const Folder folder;
  testing::write_file(folder / "run.ckpt", "MNISTCKP and then nothing sensible");
  std::atomic<int> named = 0, elsewhere = 0;
  run_communicators(3, [&](Communicator& comm) {
    Model model("softmax", 1);
    Optimizer optimizer(OptimizerKind::sgd, model.parameter_count());
    Report report({}, true);
    const TrainerOptions options;
    Trainer trainer(comm, digits(), options, model, optimizer, report);
    try {
      trainer.resume(folder / "run.ckpt");
    } catch (const FileError&) {
      ++named;
    } catch (const FailedElsewhere&) {
      ++elsewhere;
    }
    comm.barrier();  // the communicator is still good
  });
  EXPECT_EQ(named, 1);
  EXPECT_EQ(elsewhere, 2);
}

TEST(Trainer, ReplicasThatDifferEndTheRunAndAreNamed) {
  RunSetup setup;
  setup.options.epochs = 1;
  setup.before_run = [](int rank, Model& model) {
    if (rank == 1) model.parameters()[5] += 1e-3f;
  };
  const std::string text = message_of<std::runtime_error>([&] { train(3, setup); });
  EXPECT_NE(text.find("weights after epoch 1 differ between ranks: rank 1 has "), std::string::npos) << text;
}

TEST(Trainer, LearnsDrawnDigits) {
  RunSetup setup{.model = "softmax"};
  setup.options.epochs = 15;
  setup.options.batch = 10;
  Model model("softmax", 1);
  const Result result = train(2, setup);
  std::ranges::copy(result.parameters, model.parameters().begin());
  const Score train_score = evaluate(model, digits().train, {0, digits().train.size()});
  EXPECT_GT(train_score.correct, 180u);  // of 203
}

TEST(Replicas, TheOddOnesAreNamed) {
  const std::vector<std::string> equal = {"7", "7", "7"}, odd = {"7", "7", "8", "7", "9"};
  EXPECT_EQ(disagreement("weights", equal), "");
  EXPECT_EQ(disagreement("weights", odd), "weights differ between ranks: rank 2 has 8, rank 4 has 9, the others 7");
}

TEST(Replicas, TheHashSeesEveryBit) {
  std::vector<float> values(100, 1.0f);
  const std::uint64_t before = hash_of(values);
  values[99] = std::nextafter(1.0f, 2.0f);
  EXPECT_NE(hash_of(values), before);
  values = std::vector<float>(100, 0.0f);
  const std::uint64_t zeros = hash_of(values);
  values[0] = -0.0f;
  EXPECT_NE(hash_of(values), zeros);
}

TEST(Cadence, EpochsOrSteps) {
  EXPECT_EQ(Cadence::parse("3").count, 3u);
  EXPECT_FALSE(Cadence::parse("3").steps);
  EXPECT_FALSE(Cadence::parse("2epochs").steps);
  EXPECT_TRUE(Cadence::parse("500steps").steps);
  for (const char* text : {"", "0", "x", "3days", "-1", "steps"})
    EXPECT_THROW(Cadence::parse(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace mnist
