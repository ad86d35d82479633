// The numbers of a row: order statistics of the timed calls, and bandwidths as nccl-tests defines them.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.hpp"

namespace collectives::bench {

/// The middle value; the mean of the middle two when their number is even; 0 of nothing.
double median(std::span<const double> values);

/// The smallest value that at least `share` (0 to 1) of the values do not exceed (nearest rank); 0 of nothing.
double percentile(std::span<const double> values, double share);

/// exp(mean(log x)) of positive values; 0 of nothing.
double geometric_mean(std::span<const double> values);

/// Gigabytes (1e9) of the whole vector per second; 0 when no time was measured.
double algorithm_bandwidth(std::size_t bytes, double microseconds) noexcept;

/// What turns algbw into busbw, the load on the slowest link whatever the number of ranks:
///   all_reduce 2(p-1)/p, reduce_scatter and all_gather (p-1)/p, broadcast and reduce 1.
double bus_factor(Collective, int ranks) noexcept;

}  // namespace collectives::bench
