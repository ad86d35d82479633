// BoundedYield: the wait of the benchmarks, which do not link the library's own waits (wait.hpp).
//
// A loop that tests a condition calls wait() in each turn. In the first 2 ms (by default), each wait() yields the core.
// Each later wait() requests a sleep of 50 us from the kernel. The head of wait.hpp explains why no loop may yield for
// long.
#pragma once

#include <sched.h>
#include <time.h>

#include <chrono>

namespace collectives {

/// State of one loop that waits. Each loop makes an object of its own.
class BoundedYield {
 public:
  /// Makes the object of one loop. A wait() yields the core if less than `bound` has passed since the first wait().
  /// Each later wait() sleeps.
  explicit BoundedYield(std::chrono::nanoseconds bound = std::chrono::milliseconds(2)) noexcept : bound_(bound) {}
  void wait() noexcept {
    if (sleeps_) return sleep();
    const auto now = std::chrono::steady_clock::now();
    if (started_ == std::chrono::steady_clock::time_point{}) started_ = now;
    sleeps_ = now - started_ >= bound_;
    sleeps_ ? sleep() : static_cast<void>(::sched_yield());
  }
  /// Returns true if a wait() has found that the bound has passed.
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
