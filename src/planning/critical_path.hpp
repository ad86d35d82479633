// Critical path: the longest chain of work in one round of a collective. In the chain, each action waits for the one
// before. A round performs all Steps, the actions of ranks, on one segment of the vector. The chain consists of
// messages and host Steps. In a host Step, ranks of one host work together through shared memory.
//
// The chain includes waiting, which the work of the busiest rank does not include. In a tree, for example, each rank
// does little work. It waits, however, for ranks that wait for other ranks.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Critical path of one round in numbers. Times are in microseconds.
struct CriticalPath {
  double latency = 0;        ///< length of the path if links carried bytes in no time
  double wire = 0;           ///< additional length due to the time for which links carry the bytes between hosts
  double hops = 0;           ///< largest number of messages between hosts in a chain
  std::size_t messages = 0;  ///< number of messages between hosts, sent by all ranks together
  double bytes = 0;          ///< bytes of all messages between hosts
};

/// Returns the critical path. Returns nothing if the Steps, sends and receives of a round are more than 100,000
/// together. The simulation of a larger round would take more than about 60 ms.
std::optional<CriticalPath> critical_path(const Algorithm&, const RoundArgs&, const Coding&, const Topology&,
                                          const TuningParameters&);

}  // namespace collectives
