// Cost model: counts the Steps of an algorithm and puts a price on them.
//
// The cost of a plan has three parts:
//
//   busiest rank    its messages, its arithmetic, and bytes inside its host (in or out, whichever is more expensive)
//   busiest link    the bytes of all ranks of a host, which share the link to other hosts
//   longest chain   the time for which ranks wait for one another (critical_path.hpp)
//
// A round performs all Steps on one segment of each part of the vector. If rounds overlap, the wire time of one round
// is hidden behind the work of other rounds, or the reverse. The model depends neither on the number of the calling
// rank nor on a pointer or a clock. All ranks thus compute the same cost.
//
// Price: the first call of a kind takes microseconds longer. It takes milliseconds if many hosts wait for one another.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Cost of a vector. Times are in us. All fields but those "of one round" are for all rounds together.
struct Cost {
  double waits = 0;     ///< of one round: waits for peers
  double handling = 0;  ///< of one round: handing messages between hosts to the system and taking them from it
  double work = 0;      ///< bytes inside the host, and arithmetic
  double copies = 0;    ///< handing bytes to the system and taking them from it, while links carry other bytes of the
                        ///< message
  double late = 0;      ///< share of `copies` for which links stand still, because ranks take turns on too few cores
  double wire = 0;      ///< time for which the link between hosts is busy
  double chain = 0;     ///< time for which links are busy that wait for one another, if rounds do not overlap
  double machine = 0;   ///< of one round: handling of all messages of a machine with more ranks than cores
  double inside = 0;    ///< of one round: share of `waits` for ranks of this host
  double burst = 1;     ///< messages that a link gets before a rank waits for one of them
  double hops = 1;      ///< number of messages of which each waits for the one before
  /// Whether a round goes from rank to rank while the next one follows, as in broadcast and reduce. On each rank the
  /// rounds may still not overlap. A rank then waits only for space for wire_frames messages.
  bool flows = false;
  double per_frame = 0;  ///< latency divided by the number of messages that can be in flight

  /// Returns the idleness of cores while links carry bytes, from 0 to 1. With idle cores, more messages cost nothing.
  /// However, links then wait for ranks that are late.
  double idleness() const;
  /// Returns the time in us of `rounds` rounds, of which `rounds_in_flight` are in flight at once.
  double microseconds(std::size_t rounds, std::size_t rounds_in_flight) const;
};

/// Returns the cost of all rounds together. Fills in `estimate` with what one round sends.
Cost cost_of(const Algorithm&, const RoundArgs&, const Coding&, const Topology&, const TuningParameters&,
             Estimate& estimate);

}  // namespace collectives
