// Coarse clock, which is fast enough to be read in every call. Reading it takes a few nanoseconds. The time is exact to
// a few milliseconds. All processes of a machine read the same time, unless they have different time namespaces.
#pragma once

#include <time.h>

#include <chrono>

namespace collectives {

inline std::chrono::nanoseconds coarse_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace collectives
