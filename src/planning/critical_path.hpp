// Critical path of one round: the longest chain of messages and host Steps through all ranks. A round performs all
// Steps on one segment of each part of the vector.
//
// A rank of a tree does little work, but waits for ranks that wait for other ranks. The work of each rank does not
// include this time.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Critical path of one round. Times are in us.
struct CriticalPath {
  double latency = 0;        ///< length of the path without the time for bytes
  double wire = 0;           ///< increase of that length if bytes between hosts take time on links that ranks share
  double hops = 0;           ///< messages between hosts of which each waits for the one before
  std::size_t messages = 0;  ///< messages between hosts, all ranks together
  double bytes = 0;          ///< bytes of these messages
};

/// Returns the critical path. Empty if a round has more than 100,000 Steps and messages, which would take some 60 ms.
std::optional<CriticalPath> critical_path(const Algorithm&, const RoundArgs&, const Coding&, const Topology&,
                                          const TuningParameters&);

}  // namespace collectives
