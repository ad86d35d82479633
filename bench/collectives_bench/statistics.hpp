// Statistics of the timed calls: median, percentiles, means and confidence intervals, and bandwidths as NVIDIA's
// nccl-tests defines them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "collectives_bench/operation.hpp"

namespace collectives::bench {

/// Returns the middle value, or the mean of the middle two values. Returns 0 for no values.
double median(std::span<const double> values);

/// Returns a percentile: the smallest value such that at least `share` (0 to 1) of all values are not larger. Returns 0
/// for no values.
double percentile(std::span<const double> values, double share);

/// Returns exp(mean(log x)) of positive values. Returns 0 for no values.
double geometric_mean(std::span<const double> values);

/// A statistic of samples, and the bounds of its 95 % confidence interval.
struct Interval {
  double value = 0;
  double low = 0, high = 0;
};

/// Statistic of the samples whose indices are given, or nothing if these samples have none.
using Statistic = std::function<std::optional<double>(std::span<const std::size_t>)>;

/// Computes the interval by a statistical bootstrap: `samples` samples are drawn at random with replacement, many
/// times. Each draw gives a value of the statistic, and the interval is the middle 95 % of these values. Equal
/// arguments give equal intervals. Returns nothing if all samples together have no value.
std::optional<Interval> bootstrap_interval(std::size_t samples, const Statistic& statistic);

/// Returns the algorithm bandwidth: the bytes of the whole vector divided by the time of the call, in gigabytes (1e9
/// bytes) per second. Returns 0 if the time is 0.
double algorithm_bandwidth(std::size_t bytes, double microseconds) noexcept;

/// Returns the bus bandwidth divided by the algorithm bandwidth. The bus bandwidth is the traffic per second on the
/// busiest link, so it can be compared between different numbers of ranks p:
///
///   all_reduce 2(p-1)/p, reduce_scatter and all_gather (p-1)/p, broadcast and reduce 1
double bus_factor(Operation, int ranks) noexcept;

}  // namespace collectives::bench
