// Watchdog: ends the process if one test runs too long, and names the test. A hang thus costs minutes, not the time
// limit of the whole CI run.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace collectives::testing {

/// A gtest listener with a thread. When a test exceeds the limit it prints
/// "watchdog: SUITE.TEST has run for N s" and calls _exit(3).
class Watchdog final : public ::testing::EmptyTestEventListener {
 public:
  /// Returns the number of seconds in COLLECTIVES_TEST_WATCHDOG, or 120 seconds if it is not set.
  static std::chrono::seconds limit_from_environment();

  explicit Watchdog(std::chrono::seconds limit);
  ~Watchdog() override;

  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;

 private:
  void watch();

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string test_;  // name of the running test, "SUITE.TEST"; empty between tests
  std::chrono::steady_clock::time_point started_;
  bool watching_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace collectives::testing
