// Load check of the performance guidelines: finds out whether other programs use the cores of the ranks. On such a
// machine the times of calls say nothing about the library.
//
// The check times barriers, before the measurements and between them. Ranks on cores of their own leave a barrier after
// a few microseconds. If a rank loses its core, the barrier takes as long as the other program runs, often several
// milliseconds. Two numbers describe the barriers: their median, and the lost share of the time. The lost share is the
// time above the median, divided by the total time.
//
// If there are more ranks than cores, a barrier includes changes of the running rank. The median then has no limit, and
// the limit of the lost share is higher.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/topology.hpp"

namespace collectives::bench {

/// Description of timed barriers.
struct BarrierLoad {
  double median_us = 0;
  double lost = 0;  ///< share of the time above the median: 0 to 1
};

/// Describes barriers by their times in microseconds.
BarrierLoad load_of(std::span<const double> times);

/// Limits of an idle machine. A number above its limit means that the machine is busy.
struct LoadLimits {
  double median_us = 0;  ///< 0: no limit
  double lost = 0;
  double slowdown = 0;  ///< median during the measurements divided by the median before
};
LoadLimits limits_for(const Topology&);

/// Returns the reason why the machine counts as busy, or nothing. Without `during` only the barriers before count.
std::optional<std::string> reason_of_load(const BarrierLoad& before, const std::optional<BarrierLoad>& during,
                                          const LoadLimits& limits);

class LoadCheck {
 public:
  /// Collective. Begins the check.
  explicit LoadCheck(Communicator& comm);
  /// Collective. Times barriers for a fifth of a second. Forgets all barriers that it has timed before.
  void begin();
  /// Collective. Times barriers for 2 ms.
  void observe();
  /// Returns the reason why the machine counts as busy, or nothing. Barriers between the measurements count from a
  /// fiftieth of a second on.
  std::optional<std::string> reason() const;
  /// Returns the times of the barriers in words.
  std::string description() const;

 private:
  /// Times barriers for `seconds`. Appends the time of a barrier in each loop, that of the slowest rank.
  void time_barriers(double seconds, std::vector<double>& times);

  Communicator& comm_;
  const LoadLimits limits_;
  std::size_t loop_ = 1;  // barriers in a loop; equal on all ranks
  BarrierLoad before_;
  std::vector<double> during_;
};

}  // namespace collectives::bench
