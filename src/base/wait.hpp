// Waits of the library. A wait first spins, then yields the core for a limited time, and then sleeps.
//
// A wait is a loop that tests a condition. If the condition is false, the loop calls wait(). Each call of wait() is a
// turn. The first turns spin, later turns yield, and all further turns sleep:
//
//   spin    continues at once, so the loop sees a change after one cache miss; only waits of collectives spin, and
//           only if each rank has a core, or the awaited rank runs on another core
//   yield   leaves the core to another thread at once; useful if that thread is the awaited rank
//   sleep   leaves the core to all other threads, but wakes up 50 to 80 us late
//
// No loop may yield for long. Linux counts each yield as the use of a whole time slice. A thread that yields often on
// the core of another busy program therefore loses its share of the core. Some versions of Linux (6.18 is one) wrongly
// schedule other threads behind threads that yield without end. These other threads then have no core for up to a
// minute. Each loop therefore uses one of two classes, which yield for a bounded time and then sleep:
//
//   CollectiveBackoff   for waits of a collective; also wakes up for a message from another host, and returns
//                       true when the caller must check deadlines, aborts and lost peers
//   Backoff             for all other waits
//
// A sleep takes an eighth of the time that the wait has lasted, at most 1 ms. The wait therefore becomes longer by at
// most that eighth and the 80 us. A yield is late if it takes over 2 ms. Another program has then used its whole time
// slice on this core. After a late yield, waits of this process sleep at once, without yielding first. They do so for
// 2.5 ms after a single late yield, and for up to 20 ms if late yields recur. Waits of collectives note late yields and
// sleep at once only if the host is oversubscribed.
//
// A process may use another library that progresses only inside its own calls, as MPI does. The function
// set_wait_hook() installs a hook, which every CollectiveBackoff calls. The hook can progress MPI, for example. While a
// hook is installed, waits of collectives sleep for at most 50 us at a time. The waiting thread itself calls the hook,
// so the hook works with every thread level of MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "collectives/transport.hpp"

namespace collectives {

/// Function that every CollectiveBackoff of this process calls. In the first 5 us of a wait, at least every eighth turn
/// calls it; later, every turn does. The function must be short and use no Communicator.
using WaitHook = void (*)() noexcept;
/// Installs the hook. Null removes it.
void set_wait_hook(WaitHook hook) noexcept;

/// Longest sleep of a wait: 1 ms, because waits check deadlines that often.
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(1);
/// Longest sleep of a wait for an operation that progresses only in calls of this thread, as in MPI. 50 us, because
/// each message may need several calls.
constexpr std::chrono::nanoseconds kLongestSleepBetweenCalls = std::chrono::microseconds(50);

/// Time until which the waits of this process sleep at once, as a count of the steady clock. A wait that finds the time
/// in the past sets it to 0.
extern std::atomic<std::chrono::steady_clock::rep> sleep_at_once_until;

/// Yields for a bounded time, then sleeps. One object per wait.
class Backoff {
 public:
  explicit Backoff(std::chrono::nanoseconds longest_sleep = kLongestSleep) noexcept : longest_sleep_(longest_sleep) {}
  /// Yields in the first 2 ms of the wait, unless waits sleep at once. Sleeps after that.
  void wait() noexcept;
  /// Begins a new wait: the next wait() yields again.
  void reset() noexcept { started_ = {}; }

 private:
  std::chrono::nanoseconds longest_sleep_;
  std::chrono::steady_clock::time_point started_{};
};

/// Bounds the CPU time of a loop that only tests. The loop never calls a wait, so it would never sleep:
///
///   while (!work.test()) sched_yield();
///
/// One object per thread that tests.
class TestBackoff {
 public:
  /// Counts a test that found neither an end nor progress. A row is 1,000 such tests, or 32 while waits of this process
  /// sleep at once. Sleeps for 1 us if this call ends a row that took little CPU time.
  ///
  /// Little means at most the time of a test and a yield, about 2 to 6 us, per test. A program that computes for longer
  /// between two tests therefore never sleeps.
  void fruitless() noexcept;
  /// Ends the row.
  void fruitful() noexcept {
    calls_ = 0;
    slept_ = false;
  }

 private:
  struct Usage {
    std::chrono::nanoseconds cpu{};  // CPU time of this thread.
    long switches = 0;               // Number of switches to other threads.
  };
  static Usage usage() noexcept;
  static std::chrono::nanoseconds cost_of_usage() noexcept;  // Minimum CPU time of three calls of usage().

  int calls_ = 0;
  bool slept_ = false;
  Usage begun_;  // Usage at the first test of the row, or after the last sleep.
};

/// Tells the core that the calling thread polls memory. Polls then disturb the core that writes the memory less.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits of a collective. One object per wait. A wait may begin again after progress.
class CollectiveBackoff {
 public:
  /// Makes a wait. `oversubscribed` is true if the host has more ranks than cores.
  explicit CollectiveBackoff(bool oversubscribed) noexcept
      : oversubscribed_(oversubscribed), turns_(oversubscribed ? turns_before_first() : 0) {}

  /// Waits for one turn. If `wire` is not null, a sleep ends when the wire has an event. Returns true about every
  /// millisecond; the caller then checks deadlines, aborts and lost peers.
  bool wait(Wire* wire = nullptr) {
    if (++turns_ % turns_per_look_ == 0 || wire != nullptr) return wait_with_clock(wire);
    oversubscribed_ ? yield() : relax();
    return false;
  }
  /// Begins a new wait after progress. wait() still returns true every millisecond.
  void reset() noexcept {
    started_ = {};
    turns_per_look_ = sleeps_at_once_ ? 1 : kTurnsPerLook;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static void yield() noexcept;
  bool wait_with_clock(Wire* wire);

  /// Number of turns between two readings of the clock. Small, because one turn of the caller may take a microsecond.
  static constexpr std::uint32_t kTurnsPerLook = 8;
  /// Returns the begin of the count of turns. The second turn reads the clock, because most waits of oversubscribed
  /// ranks take one turn. The first turn reads it while waits may sleep at once.
  static std::uint32_t turns_before_first() noexcept {
    return kTurnsPerLook - (sleep_at_once_until.load(std::memory_order_relaxed) == 0 ? 2 : 1);
  }

  bool oversubscribed_, sleeps_at_once_ = false;
  std::uint32_t turns_, turns_per_look_ = kTurnsPerLook;
  Clock::time_point started_{}, last_turn_{}, looked_{};
};

}  // namespace collectives
