// Critical path: the longest chain of actions in one round of a collective. Each action of the chain can begin only
// when the previous action has ended. The length of the chain is therefore a lower bound of the round's time.
//
// A Step is one action of a rank. A long vector is cut into segments. A round performs all Steps on one segment. The
// actions of the chain are messages between ranks, and host Steps, in which the ranks of a host work together through
// shared memory.
//
// Even an algorithm in which every rank does little work may have a long chain. In a tree, for example, each rank
// receives and sends only a few messages. The root waits, however, for ranks that wait for other ranks.
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
  double latency = 0;        ///< length of the path without the time for which links carry bytes
  double wire = 0;           ///< additional length: time for which links carry the bytes between hosts
  double hops = 0;           ///< largest number of messages between hosts in a chain
  std::size_t messages = 0;  ///< number of messages between hosts, sent by all ranks together
  double bytes = 0;          ///< bytes of all messages between hosts
};

/// Returns the critical path. Returns nothing if a round has more than 100,000 actions (Steps, sends and receives). The
/// simulation of a longer round would take more than about 60 ms.
std::optional<CriticalPath> critical_path(const Algorithm&, const RoundArgs&, const Coding&, const Topology&,
                                          const TuningParameters&);

}  // namespace collectives
