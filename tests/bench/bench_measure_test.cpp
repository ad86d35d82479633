// Tests of the benchmark's measurements, with ranks that are threads: right results count as right, and wrong results
// are found in every buffer.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "collectives_bench/measure.hpp"
#include "support/ranks.hpp"

namespace collectives::bench {
namespace {

Settings quick() {
  Settings settings;
  settings.operations.assign(std::begin(kOperations), std::end(kOperations));
  settings.max_bytes = 4096;
  settings.factor = 8;
  settings.iterations = 3;
  settings.warmup = 1;
  settings.odd = true;
  return settings;
}

/// Runs every case on `ranks` ranks, with settings(r) on rank r. Calls `visit` with the results of rank 0.
template <class SettingsOf, class Visit>
void measure(int ranks, SettingsOf&& settings_of, Visit&& visit) {
  testing::run_ranks(ranks, [&](Bootstrap& bootstrap) {
    const Settings settings = settings_of(bootstrap.rank());
    Communicator comm(bootstrap);
    const auto cases = schedule(settings, ranks).cases;
    Measurement measurement(comm, bootstrap, settings, cases, nullptr);
    for (const Case& c : cases) {
      const auto result = measurement.run(c);
      if (bootstrap.rank() == 0 && result) visit(*result);
    }
  });
}

TEST(BenchMeasurement, RightResultsCountAsRight) {
  for (const int ranks : {1, 2, 3}) {
    std::size_t rows = 0;
    measure(
        ranks, [](Rank) { return quick(); },
        [&](const Result& result) {
          ++rows;
          EXPECT_EQ(result.wrong, 0) << to_string(result.what.operation) << " " << result.what.count;
          EXPECT_EQ(result.iterations, 3);
          EXPECT_LE(result.ours.p50, result.ours.p99);
          EXPECT_FALSE(result.plan.empty());
        });
    EXPECT_GT(rows, 50);
  }
}

TEST(BenchMeasurement, RightResultsOfPersistentCallsCountAsRight) {
  const auto settings_of = [](Rank) {
    Settings settings = quick();
    settings.persistent = true;
    settings.rotate = 20'000;
    return settings;
  };
  for (const int ranks : {2, 3})
    measure(ranks, settings_of, [](const Result& result) {
      EXPECT_EQ(result.wrong, 0) << to_string(result.what.operation) << " " << result.what.count;
    });
}

TEST(BenchMeasurement, OneRanksOtherDataIsFoundByItsPeers) {
  const auto settings_of = [](Rank rank) {
    Settings settings = quick();
    settings.min_bytes = 512;
    settings.seed = rank == 1 ? 2 : 1;
    return settings;
  };
  measure(3, settings_of, [](const Result& result) {
    if (result.what.operation == Operation::barrier) return;
    if (result.what.operation == Operation::scatter || result.what.operation == Operation::scatter_v) return;
    EXPECT_GT(result.wrong.value(), 0) << to_string(result.what.operation) << " " << result.what.count;
  });
}

TEST(BenchMeasurement, BackToBackTimesTheLoop) {
  const auto settings_of = [](Rank) {
    Settings settings = quick();
    settings.back_to_back = true;
    settings.check = false;
    return settings;
  };
  measure(2, settings_of, [](const Result& result) {
    EXPECT_EQ(result.wrong, std::nullopt);
    EXPECT_GT(result.ours.time, 0);
  });
}

TEST(BenchMeasurement, RightResultsOnBuffersInTurnCountAsRight) {
  for (const bool back_to_back : {false, true}) {
    const auto settings_of = [&](Rank) {
      Settings settings = quick();
      settings.rotate = 20'000;
      settings.back_to_back = back_to_back;
      settings.iterations = 25;
      return settings;
    };
    measure(3, settings_of, [](const Result& result) {
      EXPECT_EQ(result.wrong, 0) << to_string(result.what.operation) << " " << result.what.count;
    });
  }
}

TEST(BenchMeasurement, TheBoundIsMeasuredWhereBytesMove) {
  const auto settings_of = [](Rank) {
    Settings settings = quick();
    settings.fraction_of_roofline = true;
    return settings;
  };
  for (const int ranks : {1, 3}) {
    measure(ranks, settings_of, [](const Result& result) {
      EXPECT_EQ(result.bound.has_value(), result.bytes > 0 && has_roofline(result.what.operation))
          << to_string(result.what.operation);
      EXPECT_GT(result.bound.value_or(Bound{1, {}}).time, 0);
      EXPECT_EQ(result.wrong, 0);
    });
  }
}

TEST(BenchMeasurement, EveryTimedCallIsASample) {
  const auto settings_of = [](Rank) { return quick(); };
  measure(2, settings_of, [](const Result& result) {
    EXPECT_EQ(result.ours.samples.size(), 3);
    EXPECT_EQ(result.ours.time, result.ours.p50);
  });
}

TEST(BenchMeasurement, BackToBackEveryLoopIsASample) {
  const auto settings_of = [](Rank) {
    Settings settings = quick();
    settings.back_to_back = true;
    settings.iterations = 42;
    return settings;
  };
  measure(2, settings_of, [](const Result& result) {
    EXPECT_EQ(result.ours.samples.size(), 4);
    // 40, not 42, because the number must be a multiple of the calls of one timed loop.
    EXPECT_EQ(result.iterations, 40);
  });
}

TEST(BenchMeasurement, IterationsFollowFromTheTime) {
  const auto settings_of = [](Rank) {
    Settings settings = quick();
    settings.operations = {Operation::all_reduce};
    settings.iterations = 0;
    settings.seconds_per_size = 1e-9;
    return settings;
  };
  // 3 is the minimum number of timed calls.
  measure(2, settings_of, [](const Result& result) { EXPECT_EQ(result.iterations, 3); });
}

/// A library to compare with that does nothing. It counts its calls and records their buffers.
class IdleCompetitor final : public Competitor {
 public:
  bool has(const Call& call) const override { return call.type != DataType::bf16; }
  void perform(const Call& call) override {
    ++calls;
    if (call.input.data == latest) ++repetitions;
    latest = call.input.data;
    inputs.insert(call.input.data);
    outputs.insert(call.output.data);
  }
  int calls = 0, repetitions = 0;  // a repetition is a call on the same buffers as the call before it
  const void* latest = nullptr;
  std::set<const void*> inputs, outputs;
};

TEST(BenchMeasurement, ACompetitorIsTimedIfItHasTheCall) {
  testing::run_ranks(2, [](Bootstrap& bootstrap) {
    Settings settings = quick();
    settings.operations = {Operation::all_reduce};
    settings.types = {DataType::f32, DataType::bf16};
    Communicator comm(bootstrap);
    const auto cases = schedule(settings, 2).cases;
    IdleCompetitor competitor;
    Measurement measurement(comm, bootstrap, settings, cases, &competitor);
    for (const Case& c : cases) {
      competitor.calls = 0;
      const auto result = measurement.run(c);
      ASSERT_TRUE(result.has_value());
      EXPECT_EQ(result->wrong, 0);
      EXPECT_EQ(result->competitor.has_value(), c.type == DataType::f32);
      EXPECT_EQ(competitor.calls, c.type == DataType::f32 ? 4 : 0);  // one call to warm up, and three timed calls
    }
  });
}

TEST(BenchMeasurement, RotatedBuffersAreUsedForTheCompetitorToo) {
  testing::run_ranks(2, [](Bootstrap& bootstrap) {
    Settings settings = quick();
    settings.operations = {Operation::all_reduce};
    settings.min_bytes = settings.max_bytes = 1024;
    // Bytes that the buffers must cover: 10 vectors in place, or 5 pairs. The number is rounded up to an odd one.
    settings.rotate = 10 * 1024;
    settings.iterations = 30;
    settings.odd = false;
    Communicator comm(bootstrap);
    const auto cases = schedule(settings, 2).cases;
    IdleCompetitor competitor;
    Measurement measurement(comm, bootstrap, settings, cases, &competitor);
    for (const Case& c : cases) {
      competitor = {};
      ASSERT_TRUE(measurement.run(c).has_value());
      EXPECT_EQ(competitor.repetitions, 0);
      EXPECT_EQ(competitor.inputs.size(), c.in_place ? 11 : 5);
      EXPECT_EQ(competitor.outputs.size(), c.in_place ? 11 : 5);
    }
  });
}

}  // namespace
}  // namespace collectives::bench
