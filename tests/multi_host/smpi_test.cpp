// Tests of the library on hosts that the simulator SimGrid simulates. Jobs have more ranks than this machine could run,
// every result is checked, and times depend on the simulated network alone. A job of 256 ranks takes half a minute.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kSmpiSh[], kBuild[];

namespace collectives::testing {
namespace {

Outcome smpi(const std::string& arguments) {
  return run_command(std::string("SMPI_TIMEOUT=50 ") + kSmpiSh + " " + arguments + " --build " + kBuild);
}

/// Returns the simulated microseconds that each line of the output states.
std::vector<double> times(const std::string& output) {
  std::vector<double> times;
  for (std::size_t at = output.find(": "); at != std::string::npos; at = output.find(": ", at + 1))
    if (double us = 0; std::sscanf(output.c_str() + at, ": %lf us", &us) == 1) times.push_back(us);
  return times;
}

TEST(OnSimulatedHosts, SixtyFourRanksSumShortAndLongVectors) {
  const Outcome outcome = smpi("64 8 1024 65536");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(times(outcome.out).size(), 3u) << outcome.out;
}

TEST(OnSimulatedHosts, RanksThatAreNoPowerOfTwoDoEveryCollective) {
  for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}) {
    const Outcome outcome = smpi(std::string("19 --collective ") + collective + " 76 77824 1245184");
    EXPECT_EQ(outcome.status, 0) << collective << '\n' << outcome.out;
    EXPECT_EQ(times(outcome.out).size(), 3u) << collective << '\n' << outcome.out;
  }
}

TEST(OnSimulatedHosts, EveryAlgorithmOfAllReduceIsRight) {
  for (const char* backend :
       {"ring", "reduce_to_one", "hierarchical_one_shot", "hierarchical_doubling", "hierarchical_halving"}) {
    const Outcome outcome = smpi(std::string("12 --backend ") + backend + " 4 50000 500000");
    EXPECT_EQ(outcome.status, 0) << backend << '\n' << outcome.out;
    EXPECT_EQ(times(outcome.out).size(), 3u) << backend << '\n' << outcome.out;
  }
}

TEST(OnSimulatedHosts, ALongVectorTakesAsLongAsItsBytesOnTheWire) {
  const Outcome outcome = smpi("4 --backend ring --rate 1e8 4194304");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const double bound = 2 * 3.0 / 4 * 4194304 / 1e8 * 1e6;
  ASSERT_EQ(times(outcome.out).size(), 1u) << outcome.out;
  EXPECT_GT(times(outcome.out)[0], 0.999 * bound);
  EXPECT_LT(times(outcome.out)[0], 1.1 * bound);
}

}  // namespace
}  // namespace collectives::testing
