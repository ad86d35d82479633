// The one way to wait: spin, then yield, then sleep.
//
// Spinning answers within a cache miss, and is right while every rank has a core. With more ranks than cores the rank
// that is waited for may be waiting for this core, so the wait yields at once; and with enough cores it yields now and
// then, because the system may have put two ranks on one. A wait that has lasted a while sleeps
// for an eighth of what it has waited so far, at most a millisecond: it costs at most an eighth more than the wait
// itself, and nobody has to know who sleeps. A wait for another host ends with news from the wire, so it hands over to
// the wire soon.
//
// A process may use another library that moves on only in calls to it, as MPI does: what is under way there must go on
// while a thread waits here, or a rank may wait for itself. For this there is one hook, called in every wait; waits
// that have it yield where they would sleep.
#pragma once

#include <chrono>
#include <cstdint>

#include "collectives/transport.hpp"

namespace collectives {

/// Called in every wait of this process from now on, every few turns, and after the first microseconds in every turn:
/// whoever needs this rank's help there waits for no longer than a turn. Null: no more. What it does must be short, and
/// may not use a Communicator.
using WaitHook = void (*)() noexcept;
void set_wait_hook(WaitHook hook) noexcept;

class Waiter {
 public:
  /// `crowded`: more ranks than cores.
  explicit Waiter(bool crowded) noexcept : crowded_(crowded) {}

  /// Waits a little, for news from `wire` if there is one. True about every millisecond: time to look at deadlines,
  /// aborts and lost peers.
  bool pause(Wire* wire = nullptr) {
    if (++turns_ % turns_per_look_ == 0 || wire != nullptr) return pause_with_clock(wire);
    crowded_ ? yield() : relax();
    return false;
  }
  /// Something has moved: the next pause() begins a new wait. Looks stay due every millisecond all the same.
  void progressed() noexcept {
    started_ = {};
    turns_per_look_ = kTurnsPerLook;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void yield() noexcept;
  bool pause_with_clock(Wire* wire);

  /// Turns between two looks at the clock, unless there is a hook to call. Few, because what the caller does in a turn
  /// may itself take a microsecond.
  static constexpr std::uint32_t kTurnsPerLook = 8;

  bool crowded_;
  std::uint32_t turns_ = 0, turns_per_look_ = kTurnsPerLook;
  Clock::time_point started_{}, looked_{};
};

}  // namespace collectives
