// Tests of whole training runs on synthetic digits. The ranks are threads. With local steps, each rank updates its own
// weights. After a group of steps, the weights are averaged over the ranks (trainer.hpp).
#include "trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
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

/// State of a rank at the end of a run.
struct Result {
  std::vector<float> parameters, state;
  Position position;
  std::optional<GoalReport> goal;
};

std::vector<Result> train_all(int ranks, const RunSetup& setup) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
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
        Result& result = results[static_cast<std::size_t>(comm.rank())];
        result.parameters.assign(model.parameters().begin(), model.parameters().end());
        result.state.assign(optimizer.state().begin(), optimizer.state().end());
        result.position = trainer.position();
        result.goal = trainer.goal();
      },
      setup.communicator);
  return results;
}

/// Trains with `ranks` ranks, and returns the state of rank 0 at the end.
Result train(int ranks, const RunSetup& setup) { return train_all(ranks, setup).front(); }

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
  for (const std::size_t accumulate : {1u, 2u}) {
    setup.options.accumulate = accumulate;
    const Result alone = train(1, setup), together = train(3, setup);
    for (std::size_t i = 0; i < alone.parameters.size(); i += 13)
      EXPECT_NEAR(alone.parameters[i], together.parameters[i], 1e-5);
  }
}

TEST(Trainer, OverlapChangesNoBit) {
  RunSetup setup{.model = "cnn", .optimizer = OptimizerKind::adam};
  setup.options.max_steps = 4;
  setup.options.bucket_bytes = 100'000;
  for (const std::size_t accumulate : {1u, 3u}) {
    setup.options.batch = 64 / accumulate;
    setup.options.accumulate = accumulate;
    setup.options.overlap = true;
    const Result on = train(2, setup);
    setup.options.overlap = false;
    EXPECT_EQ(on.parameters, train(2, setup).parameters);
  }
}

TEST(Trainer, AccumulatedBatchesAreOneLongBatch) {
  const Folder folder;
  for (const int ranks : {1, 2, 3}) {
    RunSetup setup{.optimizer = OptimizerKind::momentum};
    setup.options.epochs = 2;
    setup.options.batch = 30;  // 203 images: the last step has 23
    setup.loss_trace = folder / "long";
    const Result whole = train(ranks, setup);
    setup.options.batch = 10;
    setup.options.accumulate = 3;
    setup.loss_trace = folder / "short";
    const Result parts = train(ranks, setup);
    EXPECT_EQ(parts.position.total_steps, 14u);
    for (std::size_t i = 0; i < whole.parameters.size(); ++i)
      ASSERT_NEAR(parts.parameters[i], whole.parameters[i], 1e-5) << ranks << " " << i;
    const std::vector<double> loss_of_whole = losses(folder / "long"), loss_of_parts = losses(folder / "short");
    ASSERT_EQ(loss_of_parts.size(), loss_of_whole.size());
    for (std::size_t i = 0; i < loss_of_whole.size(); ++i)
      EXPECT_NEAR(loss_of_parts[i], loss_of_whole[i], 1e-4 * loss_of_whole[i]) << ranks << " " << i;
  }
}

TEST(Trainer, AccumulatingRanksFollowTheCurveOfOne) {
  const Folder folder;
  RunSetup setup{.model = "cnn"};
  setup.options.batch = 10;
  setup.options.accumulate = 4;
  setup.options.bucket_bytes = 100'000;
  setup.options.schedule = Schedule(0.05f);
  setup.loss_trace = folder / "one";
  train(1, setup);
  setup.loss_trace = folder / "two";
  train(2, setup);
  const std::vector<double> alone = losses(folder / "one"), together = losses(folder / "two");
  EXPECT_EQ(alone.size(), 6u);
  ASSERT_EQ(together.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-4 * alone[i]) << i;
}

TEST(Trainer, AStepThatFindsOneBatchOnlyIsAStepOfOneBatch) {
  RunSetup setup;
  setup.options.epochs = 3;
  setup.options.batch = 1000;
  const Result one = train(2, setup);
  setup.options.accumulate = 5;
  EXPECT_EQ(train(2, setup).parameters, one.parameters);
}

TEST(Trainer, LocalStepsOfOneRankArePlainTraining) {
  const Folder folder;
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam})
    for (const std::size_t accumulate : {1u, 2u}) {
      RunSetup setup{.optimizer = kind};
      setup.options.batch = 20;
      setup.options.epochs = 2;
      setup.options.accumulate = accumulate;
      setup.loss_trace = folder / "plain";
      const Result plain = train(1, setup);
      setup.options.local_steps = 4;
      setup.loss_trace = folder / "local";
      const Result local = train(1, setup);
      EXPECT_EQ(local.parameters, plain.parameters);
      EXPECT_EQ(local.state, plain.state);
      EXPECT_EQ(read_file(folder / "local"), read_file(folder / "plain"));
    }
}

TEST(Trainer, LocalStepsAreStepsAloneAndThenTheMean) {
  constexpr std::size_t kBatch = 50, kGroup = 2;  // 5 steps: the last group has one step of 3 images
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::nesterov, OptimizerKind::adam}) {
    RunSetup setup{.optimizer = kind};
    setup.options.batch = kBatch;
    setup.options.local_steps = kGroup;
    const Result trained = train(2, setup);

    const std::vector<std::uint32_t> order = epoch_order(digits().train.size(), setup.options.seed, 0);
    Model models[] = {Model("softmax", 1), Model("softmax", 1)};
    const std::size_t count = models[0].parameter_count();
    Optimizer optimizers[] = {Optimizer(kind, count), Optimizer(kind, count)};
    const auto to_mean = [](std::span<float> a, std::span<float> b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
    };
    for (std::size_t step = 0; step < 5; ++step) {
      const Shard batch = batch_of(step, kBatch, order.size());
      for (const int rank : {0, 1}) {
        const Shard mine = shard_of(batch, rank, 2);
        compute_gradients(models[rank], digits().train, std::span(order).subspan(mine.begin, mine.size()),
                          2.0f / static_cast<float>(batch.size()), [](std::size_t) {});
        optimizers[rank].apply(models[rank].parameters(), models[rank].gradients(), setup.options.schedule.rate(0));
      }
      if (step % kGroup == 0 && step != 4) continue;
      to_mean(models[0].parameters(), models[1].parameters());
      to_mean(optimizers[0].state(), optimizers[1].state());
    }
    EXPECT_TRUE(std::ranges::equal(trained.parameters, models[0].parameters()));
    EXPECT_TRUE(std::ranges::equal(trained.state, optimizers[0].state()));
  }
}

TEST(Trainer, ReplicasAreEqualAfterEveryGroup) {
  for (const int ranks : {2, 3})
    for (const std::size_t stop : {1u, 6u, 100u}) {  // after a whole group, after a short one, and at the end
      RunSetup setup{.model = "mlp", .optimizer = OptimizerKind::adam};
      setup.options.batch = 50;
      setup.options.epochs = 2;
      setup.options.local_steps = 3;
      setup.options.bucket_bytes = 100'000;
      setup.options.max_steps = stop;
      const std::vector<Result> results = train_all(ranks, setup);
      for (const Result& result : results) {
        EXPECT_EQ(result.parameters, results[0].parameters);
        EXPECT_EQ(result.state, results[0].state);
        EXPECT_EQ(result.position.total_steps, stop == 1 ? 3u : stop == 6 ? 8u : 10u);
      }
    }
}

TEST(Trainer, LocalStepsLearn) {
  RunSetup setup{.model = "softmax"};
  setup.options.epochs = 15;
  setup.options.batch = 10;
  setup.options.local_steps = 8;
  Model model("softmax", 1);
  std::ranges::copy(train(2, setup).parameters, model.parameters().begin());
  EXPECT_GT(evaluate(model, digits().train, {0, digits().train.size()}).correct, 180u);  // of 203 images
}

TEST(Trainer, AnAccuracyEndsAllRanksAtTheSameStep) {
  for (const std::size_t local_steps : {1u, 2u}) {
    RunSetup setup;
    setup.options.epochs = 100;
    setup.options.batch = 10;  // 21 steps an epoch
    setup.options.local_steps = local_steps;
    setup.options.test_every = 4;
    setup.options.until_accuracy = 0.6;
    const std::vector<Result> results = train_all(3, setup);
    for (const Result& result : results) {
      ASSERT_TRUE(result.goal);
      EXPECT_TRUE(result.goal->reached);
      EXPECT_GE(result.goal->test_accuracy, 0.6);
      EXPECT_GT(result.goal->seconds, 0.0);
      EXPECT_EQ(result.goal->total_steps, result.position.total_steps);
      EXPECT_EQ(result.position.total_steps, results[0].position.total_steps);
      EXPECT_EQ(result.parameters, results[0].parameters);
    }
    EXPECT_LT(results[0].position.total_steps, 2100u);
    Model model("softmax", 1);
    std::ranges::copy(results[0].parameters, model.parameters().begin());
    const Score score = evaluate(model, digits().test, {0, digits().test.size()});
    EXPECT_EQ(static_cast<double>(score.correct) / static_cast<double>(digits().test.size()),
              results[0].goal->test_accuracy);
  }
}

TEST(Trainer, TheRunEndsIfItNeverReachesTheAccuracy) {
  RunSetup setup;
  setup.options.epochs = 2;
  setup.options.until_accuracy = 1.0;
  const Result result = train(2, setup);
  EXPECT_FALSE(result.goal->reached);
  EXPECT_EQ(result.goal->total_steps, 8u);
  EXPECT_GT(result.goal->test_accuracy, 0.0);
}

TEST(Trainer, TestsChangeNoBit) {
  RunSetup setup{.model = "mlp"};
  setup.options.max_steps = 6;
  const Result plain = train(2, setup);
  setup.options.test_every = 1;
  EXPECT_EQ(train(2, setup).parameters, plain.parameters);
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

TEST(Trainer, AContinuedRunOfLongStepsAndGroupsHasTheBitsOfAnUnbrokenOne) {
  for (const int ranks : {1, 3})
    for (const std::size_t accumulate : {1u, 2u})
      for (const std::size_t local_steps : {1u, 3u})
        for (const std::size_t stop : {2u, 5u, 7u, 12u}) {
          const Folder folder;
          RunSetup setup{.optimizer = OptimizerKind::adam};
          setup.options.batch = 20;  // 11 batches an epoch: steps and groups end short
          setup.options.epochs = 3;
          setup.options.accumulate = accumulate;
          setup.options.local_steps = local_steps;
          const Result unbroken = train(ranks, setup);

          setup.options.checkpoint = folder / "run.ckpt";
          setup.options.max_steps = stop;
          const Result first = train(ranks, setup);
          EXPECT_GE(first.position.total_steps, stop);
          EXPECT_LT(first.position.total_steps, stop + local_steps);
          setup.options.max_steps = SIZE_MAX;
          setup.resume = folder / "run.ckpt";
          const Result continued = train(ranks, setup);
          EXPECT_EQ(continued.parameters, unbroken.parameters) << accumulate << local_steps << stop;
          EXPECT_EQ(continued.state, unbroken.state);
          EXPECT_EQ(continued.position.total_steps, unbroken.position.total_steps);
        }
}

TEST(Trainer, CheckpointsWaitForTheEndOfAGroup) {
  const Folder folder;
  RunSetup setup;
  setup.options.batch = 50;  // groups end after 4 steps, and with the epoch after 5
  setup.options.epochs = 2;
  setup.options.local_steps = 4;
  setup.options.checkpoint = folder / "run.ckpt";
  setup.options.checkpoint_every = Cadence::parse("3steps");
  setup.options.max_steps = 1;
  EXPECT_EQ(train(2, setup).position.total_steps, 4u);
  Model model("softmax", 1);
  Optimizer optimizer(OptimizerKind::sgd, model.parameter_count());
  const RunIdentity identity{1, 50, digits().train.size(), digits().checksum()};
  const auto saved = [&] {
    return unpack_checkpoint(read_file(folder / "run.ckpt"), "run.ckpt", identity, model, optimizer);
  };
  EXPECT_EQ(saved().step, 4u);
  EXPECT_EQ(saved().images, 200u);
  setup.options.max_steps = 100;
  const Result result = train(2, setup);
  EXPECT_EQ(saved().total_steps, 10u);
  EXPECT_TRUE(std::ranges::equal(result.parameters, model.parameters()));
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
    comm.barrier();  // the communicator still works
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
  EXPECT_GT(train_score.correct, 180u);  // of 203 images
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
