// Statistics of a row: order statistics of the timed calls, and bandwidths as nccl-tests defines them.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.hpp"

namespace collectives::bench {

/// Returns the middle value, or the mean of the middle two values. Returns 0 for no values.
double median(std::span<const double> values);

/// Returns the smallest value that at least `share` (0 to 1) of the values do not exceed (nearest rank). Returns 0 for
/// no values.
double percentile(std::span<const double> values, double share);

/// Returns exp(mean(log x)) of positive values. Returns 0 for no values.
double geometric_mean(std::span<const double> values);

/// Returns gigabytes (1e9) of the whole vector per second. Returns 0 if no time was measured.
double algorithm_bandwidth(std::size_t bytes, double microseconds) noexcept;

/// Returns busbw / algbw. busbw is the load on the slowest link and does not depend on the number of ranks.
///
///   all_reduce 2(p-1)/p, reduce_scatter and all_gather (p-1)/p, broadcast and reduce 1
double bus_factor(Collective, int ranks) noexcept;

}  // namespace collectives::bench
