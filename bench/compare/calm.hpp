// What disturbs measurements on a virtual machine, and waiting for times without it: cores that have been moved far
// from one another, and cores that the host gives to somebody else ("steal" in /proc/stat).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "meeting.hpp"

namespace collectives::compare {

/// The cores' time since they began, in ticks of the kernel's (10 ms as a rule); zeros where it cannot be had.
struct CoreTicks {
  std::uint64_t all = 0, stolen = 0;
  static CoreTicks now();
  /// The fraction that was somebody else's from then to now.
  double stolen_since(const CoreTicks& then) const;
  /// Whether that is more than `most`, and more than a tick, which is a lot of a short time.
  bool disturbed_since(const CoreTicks& then, double most) const;
};

/// One patience for all that is asked for. All calls are collective.
class Calm {
 public:
  struct Wanted {
    double barrier_ns = 0;  ///< of the ranks' barrier, at most; 0: whatever it takes
    double stolen = 1;      ///< fraction of the cores' time, at most
    std::chrono::duration<double> patience{60};
  };
  struct Found {
    double barrier_ns = 0;  ///< the larger of that before and that after
    double stolen = 0;
  };

  /// `ticks`: where the cores' time is read.
  Calm(const Wanted& wanted, Meeting& meeting, std::function<CoreTicks()> ticks = CoreTicks::now)
      : wanted_(wanted), meeting_(meeting), ticks_(std::move(ticks)) {}

  /// Waits for cores that are near one another.
  double await_near();
  /// Calls measure(), and again for as long as it was disturbed and there is patience left. Says what the last one met.
  Found during(const std::function<void()>& measure);

 private:
  using Clock = std::chrono::steady_clock;
  bool has_patience_left_after(Clock::time_point since);

  Wanted wanted_;
  Meeting& meeting_;
  std::function<CoreTicks()> ticks_;
  std::uint64_t lost_ns_ = 0;
};

}  // namespace collectives::compare
