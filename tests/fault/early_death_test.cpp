// Tests of deaths while other ranks connect or measure the wire, and of news of a death that arrives by a detour. Ranks
// are processes that claim to be on hosts of their own. Every survivor must name the rank that was killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kEarlyDeathProgram[];

namespace collectives::testing {
namespace {

#ifdef COLLECTIVES_TEST_UCX
constexpr const char* kWires[] = {"COLLECTIVES_WIRE=tcp", "COLLECTIVES_WIRE=tcp COLLECTIVES_DATAGRAMS=off",
                                  "COLLECTIVES_WIRE=ucx"};
#else
constexpr const char* kWires[] = {"COLLECTIVES_WIRE=tcp", "COLLECTIVES_WIRE=tcp COLLECTIVES_DATAGRAMS=off"};
#endif

Outcome run(int ranks, const std::string& arguments, const std::string& variables) {
  return run_command("env " + variables + " " + kCollectivesRun + " -n " + std::to_string(ranks) +
                     " --grace 20s sh -c 'COLLECTIVES_HOST_ID=$RANK exec \"$0\" \"$@\"' " + kEarlyDeathProgram + " " +
                     arguments);
}

/// Expects that each of `survivors` ranks reports the death of `victim` in time.
void expect_named(const Outcome& outcome, int victim, int survivors) {
  EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: (peer_lost|bootstrap) after at most 5 s: .*rank " +
                                         std::to_string(victim) + " (was lost|left)"),
            survivors)
      << outcome.out;
  EXPECT_EQ(processes_of(kEarlyDeathProgram), 0);
}

TEST(EarlyDeath, WhileRanksConnectAtTheStartIsNamed) {
  for (const std::string wire : kWires) {
    const bool tcp = wire.find("tcp") != wire.npos;
    for (const int victim : {0, 1, 2}) {
      if (!tcp && victim > 0) continue;
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      // UCX asks for interfaces while it starts, before the ranks connect.
      expect_named(
          run(3, "start " + std::to_string(victim) + (tcp ? " 3" : " 1"), wire + " COLLECTIVES_TUNING=default"), victim,
          2);
    }
  }
}

TEST(EarlyDeath, WhileRanksConnectInSplitIsNamed) {
  for (const std::string wire : {kWires[0], kWires[1]})
    for (const int victim : {0, 2}) {
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      expect_named(run(3, "split " + std::to_string(victim) + " 2", wire + " COLLECTIVES_TUNING=default"), victim, 2);
    }
}

TEST(EarlyDeath, WhileTheWireIsMeasuredIsNamed) {
  const std::string cache = ::testing::TempDir() + "early_death." + std::to_string(::getpid());
  for (const std::string wire : {kWires[0], kWires[1]})
    for (const int victim : {0, 1}) {
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      std::filesystem::create_directory(cache);
      expect_named(run(3, "send " + std::to_string(victim) + " 150", wire + " XDG_CACHE_HOME=" + cache), victim, 2);
      std::filesystem::remove_all(cache);
    }
}

TEST(EarlyDeath, IsNamedByARankThatHearsOfItFromARankThatHasLeft) {
  const Outcome outcome = run(4, "news", std::string(kWires[0]) + " COLLECTIVES_TUNING=default");
  expect_named(outcome, 3, 3);
  EXPECT_EQ(occurrences(outcome.out, "rank 2: peer_lost after at most 5 s: .*rank 3 was lost"), 1) << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
