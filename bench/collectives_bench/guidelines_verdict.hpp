// Verdicts on performance guidelines. A guideline says that the left side of a cell takes no longer than its right side
// (guidelines.hpp). This file compares the times of both sides, and draws the conclusion from several runs. It performs
// no call.
//
// Both sides are timed in turn. A pair is one time of each side, and a round is a number of consecutive pairs. Each
// round gives a ratio: the median of the left times, times the weight, divided by the median of the right times. The
// ratio of a run is the median over its rounds. Its 95 % interval is computed by a statistical bootstrap over the
// rounds. Reason for rounds: consecutive times are not independent, because a disturbance lasts for many calls.
//
// A guideline is violated if the interval lies wholly above kLargestRatio in two runs of three. A cell whose interval
// does not lie above it in the first run holds, and is not measured again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives_bench/statistics.hpp"

namespace collectives::bench {

/// Ratio above which the left side counts as slower. Noise and the effects of caches and alignment are below 5 %.
inline constexpr double kLargestRatio = 1.05;
inline constexpr std::size_t kGuidelineRuns = 3;    ///< maximum number of runs of a cell
inline constexpr std::size_t kRunsOfViolation = 2;  ///< runs in which a violated guideline is exceeded

/// Times of both sides of a cell in one run, in microseconds. Times with equal indices are a pair. Each time is that of
/// the slowest rank.
struct PairedTimes {
  std::vector<double> left, right;
  std::size_t pairs_per_round = 1;
};

/// Result of one run of a cell.
struct Comparison {
  double left = 0, right = 0;  ///< medians in microseconds
  Interval ratio;

  bool exceeds() const noexcept { return ratio.low > kLargestRatio; }
};

/// Compares both sides. The left times are multiplied by `weight` in the ratio. Returns nothing if a side has no times,
/// or if the sides have different numbers of them.
std::optional<Comparison> compare_sides(const PairedTimes& times, double weight);

enum class GuidelineVerdict : std::uint8_t {
  left_out,  ///< there is no comparison
  holds,
  violated,
  undecided  ///< another run decides
};
std::string_view to_string(GuidelineVerdict) noexcept;

/// Returns the verdict on the comparisons of a cell, one for each run.
GuidelineVerdict verdict_on(std::span<const Comparison> runs) noexcept;

/// Returns the comparison with the median ratio, or the smaller one of the middle two. Requires at least one run.
const Comparison& middle_of(std::span<const Comparison> runs);

}  // namespace collectives::bench
