// Filter of disturbances on a virtual machine: waits until the cores are undisturbed, and repeats measurements that
// were disturbed.
//
// It detects two kinds of disturbance. The hypervisor may have moved the cores far from one another; a barrier then
// takes longer. It may also give the cores to another guest for some time ("steal" in /proc/stat).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "sync_file.hpp"

namespace collectives::compare {

/// Total and stolen time of all cores since boot, in ticks of the kernel. A tick is normally 10 ms. Both are zero if
/// /proc/stat cannot be read.
struct CoreTicks {
  std::uint64_t all = 0, stolen = 0;
  static CoreTicks now();
  /// Returns the fraction of the cores' time since `then` that other guests received.
  double stolen_since(const CoreTicks& then) const;
  /// Returns true if this fraction exceeds `most` and the stolen time exceeds one tick. In a short time, one tick alone
  /// may be a large fraction.
  bool disturbed_since(const CoreTicks& then, double most) const;
};

/// The filter. Limits::patience bounds the time that all waits and repetitions take together. All calls are collective.
class NoiseFilter {
 public:
  struct Limits {
    double barrier_ns = 0;  ///< maximum time of a barrier in nanoseconds; 0: no maximum
    double stolen = 1;      ///< maximum stolen fraction of the cores' time
    std::chrono::duration<double> patience{60};
  };
  struct Observed {
    double barrier_ns = 0;  ///< time of the barrier before or after the measurement, the longer one
    double stolen = 0;
  };

  /// `ticks` reads the time of the cores.
  NoiseFilter(const Limits& wanted, SyncFile& sync, std::function<CoreTicks()> ticks = CoreTicks::now)
      : limits_(wanted), sync_(sync), ticks_(std::move(ticks)) {}

  /// Blocks until the cores are near one another.
  double wait_until_near();
  /// Calls measure(), and repeats it while it was disturbed and patience is left. Returns the disturbances of the last
  /// attempt.
  Observed measure_quietly(const std::function<void()>& measure);

 private:
  using Clock = std::chrono::steady_clock;
  bool has_patience_left_after(Clock::time_point since);

  Limits limits_;
  SyncFile& sync_;
  std::function<CoreTicks()> ticks_;
  std::uint64_t lost_ns_ = 0;
};

}  // namespace collectives::compare
