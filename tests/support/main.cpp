// The main function of the test programs: runs GoogleTest under a watchdog, which ends a test that takes too long.
#include <gtest/gtest.h>

#include "support/watchdog.hpp"

int main(int argc, char** argv) {
  using collectives::testing::Watchdog;
  ::testing::InitGoogleTest(&argc, argv);
  // The list of listeners owns the watchdog, and keeps it until the process ends.
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(Watchdog::limit_from_environment()));
  return RUN_ALL_TESTS();
}
