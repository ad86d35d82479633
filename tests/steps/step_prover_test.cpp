// Tests of the faults that the prover of Steps reports (support/step_prover.hpp). A Step is one action of a rank, such
// as a send. Each fault is planted in an algorithm for two ranks. The prover runs Steps by the step player, which also
// finds critical paths and serves the simulator (steps/step_player.hpp).
#include "support/step_prover.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "steps/algorithm.hpp"

namespace collectives {
namespace {

using Emit = void (*)(const RankView&, const RoundArgs&, StepSink&);

constexpr Range kWhole{0, 4};

Algorithm algorithm_of(Emit emit) {
  return {.backend = "planted",
          .name = "planted",
          .possible = nullptr,
          .needs = "",
          .by_part = [](const CollectiveSpec&, const Topology&) { return false; },
          .pieces = [](const CollectiveSpec&, const Topology&) { return 1; },
          .depths = [](const CollectiveSpec&, const Topology&) { return 2; },
          .emit = emit};
}

/// Returns the fault of an all-reduce of two ranks, on one host or on two.
std::string fault_of(Emit emit, int ranks_per_host = 1) {
  RoundArgs args{{.collective = Collective::all_reduce}, Parts::equal(kWhole, 1)};
  StepProver prover(algorithm_of(emit), Topology::regular(2, ranks_per_host), args, 0);
  if (prover.failure.empty()) prover.check_results();
  return prover.failure;
}

/// This rank, the other one, and both.
struct Two {
  explicit Two(const RankView& view) : self{view.world.self}, other{1 - view.world.self} {}
  std::array<Rank, 1> self, other;
  std::array<Rank, 2> both{0, 1};
};

Step add(const Two& ranks) { return complete(ranks.both, {}, kWhole, Place::input, true, true, Place::output); }

TEST(StepProver, FindsNoFaultInAnExchange) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const Two ranks(view);
              steps(send(ranks.other, kWhole, Place::input));
              steps(add(ranks));
            }),
            "");
}

TEST(StepProver, ReportsDeadlockIfBothRanksReceiveFirst) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const Two ranks(view);
              steps(add(ranks));
              steps(send(ranks.other, kWhole, Place::input));
            }),
            "deadlock: rank 0");
}

/// Sends `count` messages before it receives any.
template <int count>
void send_ahead(const RankView& view, const RoundArgs&, StepSink& steps) {
  const Two ranks(view);
  for (int i = 0; i < count; ++i) steps(send(ranks.other, kWhole, Place::input));
  for (int i = 1; i < count; ++i) steps(receive(ranks.other, kWhole));
  steps(add(ranks));
}

TEST(StepProver, ReportsDeadlockIfRanksSendMoreMessagesThanAChannelHolds) {
  EXPECT_EQ(fault_of(&send_ahead<2>), "");
  EXPECT_EQ(fault_of(&send_ahead<3>), "deadlock: rank 0");
}

TEST(StepProver, ReportsAMessageThatNoRankReceives) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const Two ranks(view);
              if (view.world.self == 0) steps(send(ranks.other, kWhole, Place::input));
            }),
            "a message that nobody receives");
}

TEST(StepProver, ReportsEndsOfAMessageThatDisagreeOnItsLength) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const Two ranks(view);
              if (view.world.self == 0) steps(send(ranks.other, {0, 3}, Place::input));
              if (view.world.self == 1) steps(add(ranks));
            }),
            "both ends of a message disagree on its length");
}

TEST(StepProver, ReportsAContributionThatIsAddedTwice) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const std::array<Rank, 2> twice{view.world.self, view.world.self};
              steps(complete(twice, {}, kWhole, Place::input, true, true, Place::output));
            }),
            "a contribution twice");
}

TEST(StepProver, ReportsALostContribution) {
  EXPECT_EQ(fault_of([](const RankView& view, const RoundArgs&, StepSink& steps) {
              const Two ranks(view);
              steps(complete(ranks.self, {}, kWhole, Place::input, true, true, Place::output));
            }),
            "rank 0 has the wrong contributions");
}

TEST(StepProver, ReportsDepthsThatFall) {
  EXPECT_EQ(fault_of([](const RankView&, const RoundArgs&, StepSink& steps) {
              Step step = copy(kWhole, Place::input, Place::output);
              step.depth = 1;
              steps(step);
              step.depth = 0;
              steps(step);
            }),
            "depths that do not rise, or are not below 2");
}

TEST(StepProver, ReportsHostStepsThatDiffer) {
  EXPECT_EQ(fault_of(
                [](const RankView& view, const RoundArgs&, StepSink& steps) {
                  steps({.kind = view.world.self == 0 ? Step::Kind::host_all_reduce : Step::Kind::host_barrier});
                },
                2),
            "ranks of a host at different stages");
}

TEST(StepProver, ReportsDeadlockIfARankMissesAHostStep) {
  EXPECT_EQ(fault_of(
                [](const RankView& view, const RoundArgs&, StepSink& steps) {
                  if (view.world.self == 1) steps({.kind = Step::Kind::host_barrier});
                },
                2),
            "deadlock: rank 1");
}

}  // namespace
}  // namespace collectives
