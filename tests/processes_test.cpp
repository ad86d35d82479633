// Ranks that are processes, started by collectives_run: they reduce, and when one of them is lost, stopped or leaves,
// every survivor says so, naming it, and nothing is left behind.
#include <gtest/gtest.h>

#include <string>

#include "support/programs.hpp"

namespace collectives::testing {
namespace {

/// Runs rank_program on `ranks` ranks; everything it prints.
Outcome run(int ranks, const std::string& arguments, const std::string& environment = "") {
  return run_command(environment + " " COLLECTIVES_RUN " -n " + std::to_string(ranks) + " --grace 4s " + RANK_PROGRAM +
                     " " + arguments);
}

int leftovers() { return processes_of(RANK_PROGRAM); }

TEST(Processes, ReduceThroughSharedMemory) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const char* bytes : {"0", "8", "4000", "1000000"}) {
      const Outcome outcome = run(ranks, std::string("reduce ") + bytes);
      EXPECT_EQ(outcome.status, 0) << outcome.out;
      EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: ok"), ranks) << outcome.out;
    }
}

TEST(Processes, EverySurvivorNamesTheRankThatWasKilled) {
  for (const int victim : {0, 2}) {
    const Outcome outcome = run(4, "die " + std::to_string(victim) + " 9");
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: peer_lost after at most 1.5 s: all_reduce #[0-9]+: rank " +
                                           std::to_string(victim) + " was lost: its process ended"),
              3)
        << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(Processes, EverySurvivorNamesTheRankThatCrashed) {
  const Outcome outcome = run(3, "die 1 11");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: peer_lost after at most 1.5 s: .*rank 1 was lost"), 2) << outcome.out;
  EXPECT_EQ(leftovers(), 0);
}

TEST(Processes, ARankThatLeavesIsNotCalledDead) {
  const Outcome outcome = run(3, "leave 2");
  EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost after at most 1.5 s: .*rank 2 was lost: it left"), 2)
      << outcome.out;
}

TEST(Processes, AStoppedRankIsNamedWhenTheDeadlinePasses) {
  const Outcome outcome = run(3, "stop 1");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout .*rank 1 has not arrived"), 2) << outcome.out;
  EXPECT_EQ(leftovers(), 0);
}

TEST(Processes, OnPretendedHostsWithoutMpiAreToldWhatIsMissing) {
  const Outcome outcome = run_command(
      COLLECTIVES_RUN " -n 2 sh -c 'COLLECTIVES_HOST_ID=$RANK exec \"$0\" \"$@\"' " RANK_PROGRAM " reduce 8");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "unsupported .*brings no transport between hosts"), 2) << outcome.out;
}

TEST(Processes, WarnOfAnUnknownVariableOnce) {
  const Outcome outcome = run(3, "reduce 8", "COLLECTIVES_BAKEND=ring");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "COLLECTIVES_BAKEND"), 1) << outcome.out;
}

TEST(Processes, RefuseAnUnknownBackendByName) {
  const Outcome outcome = run(2, "reduce 8", "COLLECTIVES_BACKEND=rnig");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "unknown backend \"rnig\"; known: auto, hierarchical, ring, reduce_to_one"), 2)
      << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
