// Message failures: finds failures of unfinished point-to-point calls, and publishes the wait of this rank.
//
// A call fails if its deadline has passed, or if its peer has ended or left. A receive from any source fails if a peer
// has ended without leaving, or if all peers have left. The error text lists messages of the peer for which there is no
// receive. It also names for which rank the peer waits, for which rank that one waits, and so on (message_wait.hpp).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "monitoring/failure_detector.hpp"
#include "monitoring/message_wait.hpp"
#include "monitoring/peer_states.hpp"
#include "point_to_point/message_calls.hpp"
#include "point_to_point/message_links.hpp"
#include "point_to_point/message_operation.hpp"
#include "point_to_point/message_receives.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class MessageFailures {
 public:
  /// `stall_report`: time after which a warning names a call that still waits.
  MessageFailures(const RankView& view, FailureDetector& failure_detector, const MessageCalls& calls,
                  const MessageLinks& links, const MessageReceives& receives, std::chrono::nanoseconds stall_report)
      : view_(view),
        failure_detector_(failure_detector),
        peers_(failure_detector),
        calls_(calls),
        links_(links),
        receives_(receives),
        stall_report_(stall_report),
        lost_since_(view.world.members.size()) {}

  /// Reads control messages and looks for ended ranks, at most once per millisecond. Throws an error if the
  /// communicator has failed. Requires that this thread may use the control messages.
  void read_controls();
  /// Throws an error if the communicator has failed. Warns about calls that have waited long. Returns whether a call is
  /// about to fail. The caller then progresses messages once more before report(), because a message may have arrived
  /// since. `controls`: whether this thread may use the control messages between hosts.
  bool look(bool controls);
  /// Throws the error of the first call that has failed.
  void report(bool controls);
  /// Returns whether a rank has ended or left. Requires the right to use the control messages.
  bool has_ended(Rank rank) const { return peers_.has_ended(rank); }

  /// Publishes that this rank waits for `operation`, and has waited for `waited`.
  void publish_wait(const MessageOperation& operation, std::chrono::nanoseconds waited, bool controls);
  /// Publishes that this rank waits for nothing.
  void withdraw_wait(bool controls) noexcept;
  /// Logs the messages and calls that have no counterpart, when the communicator ends.
  void report_unmatched() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  /// Rank whose end fails an operation, and how it ended.
  struct Loss {
    Rank rank;
    std::string how;
  };
  Rank self() const noexcept { return view_.world.self; }
  std::optional<Loss> loss_of(const MessageOperation& operation);
  /// `may_arrive`: whether a message of the rank may still end the operation that waits for it.
  std::optional<Loss> loss_of_rank(Rank rank, bool may_arrive = true);
  [[noreturn]] void report_timeout(const MessageOperation& operation, std::chrono::nanoseconds waited, bool controls);
  [[noreturn]] void report_lost(const MessageOperation& operation, const Loss& loss);
  /// Returns what an operation waits for.
  std::string state_text(const MessageOperation& operation) const;
  /// Returns the messages of a rank, or of all ranks, that no receive has taken; empty: none.
  std::string stored_text(Rank from) const;

  const RankView& view_;
  FailureDetector& failure_detector_;
  PeerStates peers_;
  const MessageCalls& calls_;
  const MessageLinks& links_;
  const MessageReceives& receives_;
  const std::chrono::nanoseconds stall_report_;
  std::vector<Clock::time_point> lost_since_;  // by rank: time at which its end was first seen
  std::chrono::nanoseconds controls_read_{};   // time of the last read_controls() that read, by the coarse clock
  MessageWait published_;                      // wait that other ranks see
  bool published_to_hosts_ = false;
};

}  // namespace collectives
