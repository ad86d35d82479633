// Tests that jobs start and go on while a process sends hostile bytes to their ports. The program hostile_start makes
// the jobs. COLLECTIVES_TEST_OPERATIONS sets the number of inputs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kHostileStart[];

namespace collectives::testing {
namespace {

TEST(HostileStart, JobsStartAndContinueDespiteHostileBytes) {
  const char* const given = std::getenv("COLLECTIVES_TEST_OPERATIONS");
  const Outcome outcome =
      run_command(std::string(kHostileStart) + " --per-job 40 --inputs " + (given == nullptr ? "240" : given));
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
