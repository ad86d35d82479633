// Cost model: estimates the time of an algorithm, by which the planner compares algorithms. It counts the Steps that
// the algorithm emits. A Step is one action of a rank. It takes values, may reduce them, and may store and send the
// result.
//
// The estimate has three parts:
//
//   busiest rank    handling its messages, arithmetic, and copying bytes
//                   (inside a host, only the longer of sending and receiving counts)
//   busiest link    carrying the bytes of all ranks of a host, which share one link to other hosts
//   longest chain   the time for which ranks wait for messages of one another (critical_path.hpp)
//
// A long vector is handled in rounds. Each round performs all Steps on one segment of the vector. If rounds overlap,
// links carry the bytes of one round while ranks work on another. If enough rounds overlap, only the longer of the two
// times counts after the first round. The model depends neither on the number of the calling rank nor on a pointer or a
// clock. All ranks thus compute the same cost.
//
// Price: the estimates make the first call of a kind longer. They take microseconds, or milliseconds with many hosts.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Cost of a call. Times are in microseconds. Times marked "of one round" are those of one round. All other times but
/// `per_frame` are those of all rounds together.
struct Cost {
  double waits = 0;     ///< of one round: time for which a rank waits for peers
  double handling = 0;  ///< of one round: system calls of a rank that send and receive messages between hosts
  double work = 0;      ///< copying bytes inside the host, and arithmetic
  double copies = 0;    ///< copying bytes to and from the kernel, while links carry other bytes of the message
  double late = 0;      ///< time in `copies` for which links stand still, because there are more ranks than cores
  double wire = 0;      ///< time for which the link between hosts is busy
  double chain = 0;     ///< time for which links carry bytes in the longest chain of messages, if rounds do not overlap
  double machine = 0;   ///< of one round: handling of all messages of a machine with more ranks than cores
  double inside = 0;    ///< of one round: the part of `waits` for which a rank waits for ranks of its own host
  double burst = 1;     ///< average number of messages that are sent over a link at the same time
  double hops = 1;      ///< number of messages in the longest chain, in which each waits for the one before
  /// Whether each round passes from rank to rank while the next round follows. A broadcast or reduce between hosts
  /// works in this way. A rank then waits only if wire_frames of its messages are under way already.
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
