// What a plan costs: the Steps of its algorithm are counted, and a price is put on them.
//
// The Steps of one rank say how long it works in a round: for messages, bytes inside its host, arithmetic; there the
// dearer direction counts, in or out. Those of all ranks of a host say how long its link to the others is busy, which
// they share; those of all ranks together, how long they wait for one another (critical_path.hpp). The busiest rank,
// the busiest link and the longest chain make the cost of a plan. Where rounds overlap, what is on the wire in one is
// hidden behind the work of others, or the reverse. Nothing here knows a rank of its own, a pointer or a clock.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "compression/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// What a vector costs. All but `waits` is for all rounds together.
struct Cost {
  double waits = 0;     ///< us of one round: others are waited for
  double handling = 0;  ///< us of one round: messages between hosts given to the system and taken from it
  double work = 0;      ///< us: bytes inside the host, arithmetic
  double copies = 0;  ///< us: bytes given to the system and taken from it, while links carry others of the same message
  double late = 0;    ///< us: of those, what links stand still for, as ranks take turns on too few cores
  double wire = 0;    ///< us: the link between hosts is busy
  double chain = 0;   ///< us: links are, that have to wait for one another, if rounds do not overlap
  double machine = 0;  ///< us of one round: the cores of a machine that has more ranks do the handling of all
  double inside = 0;   ///< us of one round: of `waits`, those for ranks of this host
  double burst = 1;    ///< messages that a link is given before anybody waits for one of them
  double hops = 1;     ///< messages that wait for one another
  /// Broadcast and reduce: a round goes from rank to rank while the next one follows, also where rounds do not overlap
  /// on any one rank; all that a rank waits for is room for `frames` messages.
  bool flows = false;
  double per_frame = 0;  ///< us of latency over the frames that can be on their way

  /// Of cores while links carry bytes, 0 to 1: where they are, links wait for late ranks, and more messages cost
  /// nothing.
  double idleness() const;
  /// `rounds_in_flight` rounds are under way at once.
  double microseconds(std::size_t rounds, std::size_t rounds_in_flight) const;
};

/// What all rounds cost together; `estimate` gets what is sent in one.
Cost cost_of(const Algorithm&, const RoundArgs&, const Coding&, const Topology&, const Tuning&, Estimate& estimate);

}  // namespace collectives
