// Peer states: tells a waiting point-to-point call whether its peer has ended. It also publishes the message for which
// this rank waits.
//
// A collective waits for all ranks, so the failure detector checks all of them. A point-to-point call waits for one
// rank, its peer. It asks this class whether the peer has ended, in which collective the peer is, and for which message
// the peer waits.
#pragma once

#include <string>
#include <vector>

#include "monitoring/failure_detector.hpp"
#include "monitoring/message_wait.hpp"

namespace collectives {

class PeerStates {
 public:
  /// `failure_detector` must outlive the object.
  explicit PeerStates(FailureDetector& failure_detector) : detector_(failure_detector) {}

  /// Looks for ranks that have ended or left the communicator. Also publishes that this rank runs. Requires the
  /// communicator's lock if there is a wire, the transport between hosts.
  void look_for_ends();
  /// Returns a text about the end of a rank that look_for_ends() has found: how the rank has ended or left. Returns an
  /// empty text for any other rank. Requires the communicator's lock if there is a wire.
  std::string end_of(Rank rank) const;
  /// Returns whether end_of() is not empty.
  bool has_ended(Rank rank) const { return !end_of(rank).empty(); }
  /// Returns true if a rank for which has_ended() returns true has left the communicator without a failure.
  bool has_left(Rank rank) const noexcept;
  /// Returns the call in which a rank of this host is, such as "barrier #3". Returns an empty text for other ranks.
  std::string current_call_of(Rank rank) const;

  /// Publishes the message for which this rank waits, and that this rank runs. `to_hosts`: also sends it to other
  /// hosts, which requires the communicator's lock.
  void publish_wait(const MessageWait& wait, bool to_hosts);
  /// Returns the message for which another rank is known to wait.
  MessageWait wait_of(Rank rank) const noexcept;
  /// Returns those of `ranks`, in ascending order, that give no sign of life: they were stopped, or are in no call.
  /// `controls`: whether the caller has the communicator's lock. If so, asks the ranks of other hosts, which takes up
  /// to 0.3 s. Otherwise returns none of them.
  std::vector<Rank> silent_of(const std::vector<Rank>& ranks, bool controls);

 private:
  bool is_here(Rank rank) const noexcept { return detector_.view_.host_of(rank) == detector_.view_.grid.host; }
  RankBlock& block_of(Rank rank) const noexcept { return detector_.arena_.block(detector_.view_.local_of(rank)); }

  FailureDetector& detector_;
};

}  // namespace collectives
