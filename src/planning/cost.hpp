// Cost model: estimates how long an algorithm takes. The planner chooses the algorithm with the shortest estimate.
//
// The model counts the Steps that an algorithm emits. A Step is one action of a rank, such as to receive a message and
// add it. The model converts the counts to three times in microseconds:
//
//   busiest rank    time of the rank with the most work: system calls for messages, arithmetic, and copying
//   busiest link    time for which the link between a host and the network carries bytes of all ranks of the host
//   longest chain   time for which ranks wait for messages of one another (critical_path.hpp)
//
// A long vector is cut into segments. Each round performs all Steps on one segment. If rounds overlap, the links carry
// bytes of one round while the cores work on another round. The estimate for the rounds after the first is then the
// longer of two times: that of the busiest rank, and that of the busiest link.
//
// All ranks compute the same cost, because the model uses only values that are equal on all ranks.
//
// Price: the first call with new arguments takes microseconds longer, or milliseconds longer with many hosts.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Cost of a call in microseconds. Times marked "of one round" are for one round. All other times except `per_frame`
/// are for all rounds together.
struct Cost {
  double waits = 0;     ///< of one round: time for which a rank waits for peers
  double handling = 0;  ///< of one round: system calls of a rank that send and receive messages between hosts
  double work = 0;      ///< copying bytes inside the host, and arithmetic
  double copies = 0;    ///< copying bytes to and from the kernel, while links carry other bytes of the message
  double late = 0;      ///< time in `copies` for which links carry nothing, because there are more ranks than cores
  double wire = 0;      ///< time for which the link between hosts is busy
  double chain = 0;     ///< time for which links carry bytes in the longest chain of messages, if rounds do not overlap
  double machine = 0;   ///< of one round: system calls of all ranks of a machine with more ranks than cores
  double inside = 0;    ///< of one round: time in `waits` for which a rank waits for ranks of its own host
  double burst = 1;     ///< average number of messages that are sent over a link at the same time
  double hops = 1;      ///< number of messages in the longest chain, in which each message waits for the previous one
  /// Whether ranks pass the messages of one round on while the next round begins. This is so in a broadcast or reduce
  /// between hosts. A rank then waits only if wire_frames of its messages are in flight.
  bool flows = false;
  double per_frame = 0;  ///< time per message if latency limits the rate: wire_us / wire_frames of the tuning

  /// Returns how idle the cores are while links carry bytes, from 0 (busy) to 1 (idle). The time `late` counts in this
  /// proportion.
  double idleness() const;
  /// Returns the time in microseconds of `rounds` rounds, of which `rounds_in_flight` are in flight at once.
  double microseconds(std::size_t rounds, std::size_t rounds_in_flight) const;
};

/// Returns the cost of the algorithm with these arguments. Sets the algorithm and the bytes of `estimate`, and the
/// number of messages of one round.
Cost cost_of(const Algorithm&, const RoundArgs&, const Coding&, const Topology&, const TuningParameters&,
             Estimate& estimate);

}  // namespace collectives
