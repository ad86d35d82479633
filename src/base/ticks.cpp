// Implementation of the tick clock, which measures times by the time-stamp counter of the processor. Reading this
// counter is faster than reading the steady clock. This file finds out whether the counter is usable. It also reads the
// counter and the steady clock at nearly the same time, so that ticks can be converted to nanoseconds.
#include "base/ticks.hpp"

#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace collectives {
namespace {

/// Returns whether the processor reports that its time-stamp counter has a constant rate. Otherwise the library does
/// not use the counter.
bool invariant_counter() noexcept {
#if defined(__x86_64__)
  constexpr unsigned kPowerManagement = 0x80000007, kInvariant = 1u << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0;
#else
  return false;
#endif
}

}  // namespace

const bool counter_is_even = invariant_counter();

TickMark TickMark::now() noexcept {
  TickMark best;
  auto shortest = std::numeric_limits<std::uint64_t>::max();
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::uint64_t before = ticks_now(), nanoseconds = steady_nanoseconds(), after = ticks_now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {before + shortest / 2, nanoseconds};
  }
  return best;
}

}  // namespace collectives
