// Failures under mpirun, on one host and on pretended hosts with MPI between them: every rank reports what happened;
// where mpirun ends the job itself, nothing hangs and nothing is left behind.
#include <gtest/gtest.h>

#include <string>

#include "support/programs.hpp"

namespace collectives::testing {
namespace {

/// Whether every two of the four ranks pretend to have a host of their own.
class UnderMpirun : public ::testing::TestWithParam<bool> {
 protected:
  static Outcome run(const std::string& arguments) {
    const std::string hosts = GetParam() ? "sh " ON_PRETENDED_HOSTS " 2 " : "";
    return run_command("timeout 60 " MPIRUN " -np 4 " + hosts + MPI_PROGRAM + " " + arguments);
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
  EXPECT_EQ(processes_of(MPI_PROGRAM), 0);
}

INSTANTIATE_TEST_SUITE_P(, UnderMpirun, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "SeveralHosts" : "OneHost"; });

}  // namespace
}  // namespace collectives::testing
