// How long one round takes: the longest chain of messages and meetings through all ranks. A rank of a tree does little,
// but waits for those who wait for others; adding up what each rank does itself does not show that.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/plan.hpp"
#include "compression/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// In microseconds.
struct CriticalPath {
  double latency = 0;  ///< when only latency counts
  double wire = 0;     ///< and so much more when the bytes between hosts take their time on links that ranks share
  double hops = 0;     ///< messages between hosts of which each waits for the one before
  std::size_t messages = 0;  ///< between hosts, all together
  double bytes = 0;          ///< of those
};

/// Empty where there are too many messages to play them all: 100,000, some 60 ms.
std::optional<CriticalPath> critical_path(const Algorithm&, const RoundArgs&, const Coding&, const Topology&,
                                          const Tuning&);

}  // namespace collectives
