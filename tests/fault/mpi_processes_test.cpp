// Tests of failures of programs under mpirun, on one host, and with ranks that claim hosts of their own and are
// connected by MPI. Every rank must report the failure. If mpirun ends the job itself, no process may hang or remain.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/pattern.hpp"
#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kMpiProgram[], kOnFakeHosts[];

namespace collectives::testing {
namespace {

/// Tests with four ranks on one host (false), or on two claimed hosts of two ranks each (true).
class UnderMpirun : public ::testing::TestWithParam<bool> {
 protected:
  static Outcome run(const std::string& arguments) {
    const std::string hosts = GetParam() ? std::string("sh ") + kOnFakeHosts + " 2 " : "";
    return run_command("timeout 60 " MPIRUN " -np 4 " + hosts + kMpiProgram + " " + arguments);
  }
};

TEST_P(UnderMpirun, AMismatchReachesEveryRank) {
  const Outcome outcome = run("mismatch");
  EXPECT_EQ(occurrences(outcome.out, "rank [0-3]: mismatch: all_reduce #21: .*rank 1 passed 999 x f32"), 4)
      << outcome.out;
}

TEST_P(UnderMpirun, AMissingRankIsNamed) {
  const Outcome outcome = run("missing");
  EXPECT_EQ(occurrences(outcome.out, "rank [0-3]: timeout: all_reduce #21: timed out .*rank 1 has not arrived"), 4)
      << outcome.out;
}

TEST_P(UnderMpirun, AnAbortReachesRanksThatAreInACall) {
  const Outcome outcome = run("abort");
  EXPECT_EQ(occurrences(outcome.out, "rank [23]: aborted: aborted by rank 1: no data"), 2) << outcome.out;
}

TEST_P(UnderMpirun, AKilledRankLeavesNothingBehind) {
  const Outcome outcome = run("die");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(WEXITSTATUS(outcome.status), 124) << "timed out: " << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "[Ss]ignal:? 9|KILLED BY SIGNAL: 9|EXIT CODE: 9"), 1) << outcome.out;
  EXPECT_EQ(processes_of(kMpiProgram), 0);
}

TEST(UnderMpirunOnTwoHosts, TheHostOfRankZeroMeasuresForAll) {
  std::string cache = (std::filesystem::temp_directory_path() / "mpi_processes_test.XXXXXX").string();
  ASSERT_NE(::mkdtemp(cache.data()), nullptr);
  // Ranks 0 and 1 share one host, with a core each, and rank 2 is on another. No tuning is measured on a busy machine.
  const auto run = [&] {
    return run_command("COLLECTIVES_TUNING= XDG_CACHE_HOME=" + cache +
                       " COLLECTIVES_CORES=2 timeout 60 " MPIRUN
                       " -np 3 sh -c 'COLLECTIVES_HOST_ID="
                       "host$((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} / 2)) exec " +
                       kMpiProgram + " tuning'");
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Outcome outcome = run();
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    const Pattern pattern("inline [0-9]+, tuning (measured on this machine |built-in .the machine was too busy).*");
    const auto said = pattern.first_in(outcome.out);
    ASSERT_TRUE(said) << outcome.out;
    int alike = 0;
    for (std::size_t at = 0; (at = outcome.out.find(said->text, at)) != std::string::npos; ++at) ++alike;
    EXPECT_EQ(alike, 3) << outcome.out;
  }
  std::filesystem::remove_all(cache);
}

INSTANTIATE_TEST_SUITE_P(, UnderMpirun, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "SeveralHosts" : "OneHost"; });

}  // namespace
}  // namespace collectives::testing
