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

constexpr const char* kWires[] = {"COLLECTIVES_WIRE=tcp", "COLLECTIVES_WIRE=tcp COLLECTIVES_DATAGRAMS=off"};

Outcome run(int ranks, const std::string& arguments, const std::string& variables) {
  return run_command("env " + variables + " " + kCollectivesRun + " -n " + std::to_string(ranks) +
                     " --grace 20s sh -c 'COLLECTIVES_HOST_ID=$RANK exec \"$0\" \"$@\"' " + kEarlyDeathProgram + " " +
                     arguments);
}

/// Expects that each of `survivors` ranks reports the death of `victim` in time.
void expect_named(const Outcome& outcome, int victim, int survivors) {
  EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: (peer_lost|bootstrap) after at most 5 s: .*rank " +
                                         std::to_string(victim) + " (was lost|left|cannot be reached)"),
            survivors)
      << outcome.out;
  EXPECT_EQ(processes_of(kEarlyDeathProgram), 0);
}

TEST(EarlyDeath, WhileRanksConnectAtTheStartIsNamed) {
  for (const std::string wire : kWires)
    for (const int victim : {0, 1, 2}) {
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      expect_named(run(3, "start " + std::to_string(victim) + " 3", wire + " COLLECTIVES_TUNING=default"), victim, 2);
    }
}

/// Folder that is removed at the end of a case.
struct Folder {
  std::string path = ::testing::TempDir() + "early_death." + std::to_string(::getpid());
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(EarlyDeath, WhileRanksConnectIsNamedIfTheBootstrapDoesNotNoticeIt) {
  for (const int victim : {0, 1, 2}) {
    SCOPED_TRACE("rank " + std::to_string(victim));
    const Folder folder;
    expect_named(run(3, "files " + std::to_string(victim) + " 3",
                     std::string(kWires[0]) + " COLLECTIVES_TUNING=default FOLDER=" + folder.path),
                 victim, 2);
  }
}

#ifdef COLLECTIVES_TEST_UCX
TEST(EarlyDeath, WhileRanksConnectOverUcxIsNamed) {
  for (const int victim : {0, 2})
    for (const std::string microseconds : {"5000", "20000", "60000"}) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " after us " + microseconds);
      expect_named(run(3, "alarm " + std::to_string(victim) + " " + microseconds,
                       "COLLECTIVES_WIRE=ucx COLLECTIVES_TUNING=default"),
                   victim, 2);
    }
}
#endif

TEST(EarlyDeath, WhileRanksConnectInSplitIsNamed) {
  for (const std::string wire : kWires)
    for (const int victim : {0, 2}) {
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      expect_named(run(3, "split " + std::to_string(victim) + " 2", wire + " COLLECTIVES_TUNING=default"), victim, 2);
    }
}

TEST(EarlyDeath, WhileTheWireIsMeasuredIsNamed) {
  for (const std::string wire : kWires)
    for (const int victim : {0, 1}) {
      SCOPED_TRACE(wire + ", rank " + std::to_string(victim));
      const Folder cache;
      expect_named(run(3, "send " + std::to_string(victim) + " 40",
                       "-u COLLECTIVES_TUNING " + wire + " XDG_CACHE_HOME=" + cache.path),
                   victim, 2);
    }
}

TEST(EarlyDeath, IsNamedByARankWhoseInformerHasLeft) {
  const Outcome outcome = run(4, "news", std::string(kWires[0]) + " COLLECTIVES_TUNING=default");
  expect_named(outcome, 3, 3);
  EXPECT_EQ(occurrences(outcome.out, "rank 2: peer_lost after at most 5 s: .*rank 3 was lost"), 1) << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
