// Tick clock, which is fast enough to time every call. It counts ticks.
//
// A tick is one count of the processor's time-stamp counter, if this counter has a constant rate. Otherwise, a tick is
// one nanosecond of the steady clock. Reading the counter takes a few nanoseconds. Records of calls hold ticks. A
// reader of a record converts the ticks to nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace collectives {

/// Whether ticks are counts of the processor's counter. It is the same in all processes of a machine.
extern const bool counter_is_even;

inline std::uint64_t steady_nanoseconds() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  // The compiler's name of __rdtsc(), because <x86intrin.h> has 50,000 lines and takes a second to compile.
  if (counter_is_even) return __builtin_ia32_rdtsc();
#endif
  return steady_nanoseconds();
}

/// Tick count and time of the steady clock at the same moment.
struct TickMark {
  std::uint64_t ticks = 0, nanoseconds = 0;
  /// Reads both clocks 4 times and returns the pair with the shortest delay between its readings. Reason: an interrupt
  /// between the two readings of a pair would make the pair inexact.
  static TickMark now() noexcept;
};

/// Converts ticks to nanoseconds of the steady clock. The rate is computed from two TickMarks. Between these two
/// moments, the result is as exact as a reading of the steady clock.
class TickScale {
 public:
  explicit TickScale(const TickMark& from, const TickMark& to = TickMark::now()) noexcept
      : from_(from),
        rate_(to.ticks > from.ticks && counter_is_even
                  ? static_cast<double>(to.nanoseconds - from.nanoseconds) / static_cast<double>(to.ticks - from.ticks)
                  : 1.0) {}
  std::uint64_t length(std::uint64_t ticks) const noexcept {
    constexpr double kMost = 9e18;  // largest result; ticks from another process may be any number
    const double nanoseconds = static_cast<double>(ticks) * rate_;
    return static_cast<std::uint64_t>(nanoseconds < kMost ? nanoseconds : kMost);
  }
  std::uint64_t at(std::uint64_t ticks) const noexcept {
    return ticks >= from_.ticks ? from_.nanoseconds + length(ticks - from_.ticks)
                                : from_.nanoseconds - length(from_.ticks - ticks);
  }

 private:
  TickMark from_;
  double rate_;
};

}  // namespace collectives
