// A clock for every call: the processor's own counter where it runs evenly and alike on all cores, read in a few
// nanoseconds and made into time only when somebody looks at what was written down; the steady clock elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace collectives {

/// Whether the counter is good for it. The same for all processes of a machine.
extern const bool counter_is_even;

inline std::uint64_t steady_nanoseconds() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  if (counter_is_even) return __rdtsc();
#endif
  return steady_nanoseconds();
}

/// The counter and the steady clock at one moment.
struct TickMark {
  std::uint64_t ticks = 0, nanoseconds = 0;
  /// The best of some attempts: in between the system may give the core to somebody else.
  static TickMark now() noexcept;
};

/// Ticks as nanoseconds of the steady clock, by the rate between two moments: as exact as one reading of the clock, for
/// all that lies between them.
class TickScale {
 public:
  explicit TickScale(const TickMark& from, const TickMark& to = TickMark::now()) noexcept
      : from_(from),
        rate_(to.ticks > from.ticks && counter_is_even
                  ? static_cast<double>(to.nanoseconds - from.nanoseconds) / static_cast<double>(to.ticks - from.ticks)
                  : 1.0) {}
  std::uint64_t length(std::uint64_t ticks) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(ticks) * rate_);
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
