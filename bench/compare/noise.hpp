// Noise filter: waits until the cores of a virtual machine are undisturbed, and repeats measurements that were
// disturbed.
//
// The filter detects two kinds of disturbance. The hypervisor may have moved the cores far from one another, so that a
// barrier takes longer. The hypervisor may also have given the cores to another guest for some time, which /proc/stat
// shows as "steal".
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "sync_file.hpp"

namespace collectives::compare {

/// Total time and stolen time of all cores since the machine was started, in ticks of the kernel. A tick is normally 10
/// ms. Both times are zero if /proc/stat cannot be read.
struct CoreTicks {
  std::uint64_t all = 0, stolen = 0;
  static CoreTicks now();
  /// Returns the fraction of the cores' time since `then` that other guests received.
  double stolen_since(const CoreTicks& then) const;
  /// Returns true if that fraction exceeds `most` and more than one tick was stolen. In a short measurement, one tick
  /// may be a large fraction.
  bool disturbed_since(const CoreTicks& then, double most) const;
};

/// The filter. Limits::patience is the maximum time of all waits and repetitions. All ranks must call each function.
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
