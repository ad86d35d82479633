// Tests that a rank which is killed at a random time is reported by all survivors, soon and by its number. The program
// random_kills makes the trials; COLLECTIVES_TEST_SEED gives another seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/programs.hpp"
#include "support/system.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kRandomKills[];

namespace collectives::testing {
namespace {

constexpr int kTrials = kSanitized ? 16 : 200;  // processes with sanitizers start slowly
constexpr int kSlices = 4;

class RandomKills : public ::testing::TestWithParam<int> {};

TEST_P(RandomKills, AreReportedSoonAndByTheRightRank) {
  const char* const given = std::getenv("COLLECTIVES_TEST_SEED");
  const int trials = kTrials / kSlices;
  const Outcome outcome =
      run_command(std::string(kRandomKills) + " --quiet --seed " + (given == nullptr ? "1" : given) + " --first " +
                  std::to_string(GetParam() * trials) + " --trials " + std::to_string(trials));
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Slice, RandomKills, ::testing::Range(0, kSlices));

}  // namespace
}  // namespace collectives::testing
