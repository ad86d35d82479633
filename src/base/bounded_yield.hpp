// BoundedYield: waits in the loops of benchmarks. Benchmarks are not linked with the library's waits (wait.hpp).
//
// A loop calls wait() after each test of its condition. In the first 2 ms (by default), wait() yields the core to
// another process. Later, wait() sleeps for at least 50 us, because a long series of yields would disturb other
// programs (wait.hpp).
#pragma once

#include <sched.h>
#include <time.h>

#include <chrono>

namespace collectives {

/// State of one waiting loop. Each loop makes an object of its own.
class BoundedYield {
 public:
  /// Makes the object of one loop. Until `bound` has passed since the first call of wait(), wait() yields the core.
  /// After that, wait() sleeps.
  explicit BoundedYield(std::chrono::nanoseconds bound = std::chrono::milliseconds(2)) noexcept : bound_(bound) {}
  void wait() noexcept {
    if (sleeps_) return sleep();
    const auto now = std::chrono::steady_clock::now();
    if (started_ == std::chrono::steady_clock::time_point{}) started_ = now;
    sleeps_ = now - started_ >= bound_;
    sleeps_ ? sleep() : static_cast<void>(::sched_yield());
  }
  /// Returns true if the loop has begun to sleep.
  bool sleeps() const noexcept { return sleeps_; }

 private:
  static void sleep() noexcept {
    constexpr timespec kSleep{0, 50'000};  // 50 us in nanoseconds; Linux adds 50 us of timer slack
    ::nanosleep(&kSleep, nullptr);
  }

  std::chrono::nanoseconds bound_;
  std::chrono::steady_clock::time_point started_{};
  bool sleeps_ = false;
};

}  // namespace collectives
