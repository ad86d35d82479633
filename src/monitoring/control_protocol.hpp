// Control protocol: tells ranks of other hosts about calls, failures and departures.
//
// The control messages travel over the wire, the transport between hosts, but separately from the data of calls. The
// protocol uses them for six purposes (control_messages.hpp):
//
//   arrivals   An arrival record states that a rank has entered a call, and holds the arguments of the call. A rank
//              that has waited in a call for 100 ms sends the newest records of its host's ranks, once per call. The
//              other hosts thus find missing ranks and different calls. A rank that has found different calls sends all
//              records of its host, so that all hosts know the first call that differs. A rank that refuses a call
//              sends the record of this call at once.
//   abort      A rank that throws a failure sends the failure to ranks of other hosts, which store and throw it, too. A
//              rank also sends a failure that it has received, because the first sender may end before it has reached
//              all ranks.
//   leave      A rank that leaves the communicator without a failure sends the number of the last call that it has
//              completed, and its records. It sends this message only if the wire detects failed peers.
//   wait       A rank that has waited for a point-to-point message for 100 ms reports this wait, and later its end.
//   ping       A rank whose deadline has passed pings the ranks for which it may wait. A rank that waits in a call
//              answers with an echo within milliseconds. A rank that computes or was stopped sends no echo.
//   member     The members of a new communicator exchange texts by these messages. The protocol only stores them, at
//              most kMostMemberMessages of each rank, until the receiver takes part in the exchange.
//
// The wire itself reports ranks whose connection has ended (Wire::poll_failed_peer). For each of these ranks, the
// protocol stores the reason that the wire has reported.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/transport.hpp"
#include "monitoring/arrival_table.hpp"
#include "monitoring/control_messages.hpp"
#include "monitoring/first_failure.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class ControlProtocol {
 public:
  /// Rank of another host that was lost, and how it was lost. An example of `how`: "it left the communicator after its
  /// call #17".
  struct LostRank {
    Rank rank;
    std::string how;
    bool left;  ///< whether the rank has left; its process or host then did not end without notice
  };

  /// Constructs the protocol of one rank. poll() adds received arrival records to `arrivals`, and stores a received
  /// failure in `failure`.
  ControlProtocol(const RankView& view, Wire& wire, ArrivalTable& arrivals, FirstFailure& failure);
  ControlProtocol(const ControlProtocol&) = delete;
  ControlProtocol& operator=(const ControlProtocol&) = delete;

  /// Notes the time at which this rank enters a call.
  void begin_call() noexcept { call_begun_ = std::chrono::steady_clock::now(); }
  /// Sends all records of this host, unless they were sent in this call already.
  void send_all_records();
  /// Sends the record of this rank's newest call.
  void send_newest_record();
  /// Reads all messages that have arrived. Then sends the records of the current call if they are due.
  void poll();
  /// Sends the first failure to the other hosts, unless they have it already. Does nothing while a rank is still
  /// writing the failure.
  void send_failure() noexcept;
  /// Sends the first failure if the wire accepts control messages from any thread.
  void send_failure_from_any_thread() noexcept {
    if (wire_.control_is_thread_safe()) send_failure();
  }
  /// Restricts poll(): later calls of poll() send records only if the wire detects failed peers. The wire over MPI
  /// detects none. MPI must not be given a message for a rank that has ended.
  void begin_leave() noexcept { leaving_ = true; }
  /// Sends the leave message. Does nothing unless the wire detects failed peers.
  void announce_leave() noexcept;
  /// Sends the point-to-point wait of this rank (MessageWait::word()); 0: it has ended.
  void send_wait(std::uint64_t word);
  /// Returns the point-to-point wait that a rank of another host has sent last.
  std::uint64_t wait_of(Rank rank) const noexcept { return ends_[static_cast<std::size_t>(rank)].wait; }

  /// Pings those of `ranks` that are on other hosts and have neither ended nor left. Blocks until all have answered, at
  /// most for kLongestEcho, or until there is a failure. Returns the ranks that have not answered.
  std::vector<Rank> silent_of(Peers ranks);

  /// Stores the ranks that the wire has reported as lost.
  void note_lost();
  /// Returns true if the rank has sent a leave message.
  bool has_left(Rank rank) const noexcept { return ends_[static_cast<std::size_t>(rank)].left; }
  /// Returns how a rank of another host has ended or left, as far as note_lost() and poll() know. Empty: the rank is
  /// still a member.
  std::string end_of(Rank rank) const;
  /// Returns the rank of another host that was lost first, before it completed the call. A rank that left after it had
  /// completed the call is not lost, unless the wire still waits for data from it. A rank that has left is returned
  /// only if no other rank was lost, because ranks leave after they have lost a peer.
  std::optional<LostRank> first_lost(std::uint64_t sequence);

  /// Sends a member message. The wire drops it if it cannot be sent.
  void send(Rank to, const MemberMessage& message) { wire_.post_control(to, message.encode()); }
  /// Member messages that have arrived from a rank, oldest first. The caller removes those that it has used.
  std::vector<MemberMessage>& member_messages(Rank from) noexcept {
    return member_messages_[static_cast<std::size_t>(from)];
  }

 private:
  /// Longest wait for echoes. A rank that waits in a call reads control messages about every millisecond. The rest is
  /// for its scheduler and for the wire.
  static constexpr std::chrono::milliseconds kLongestEcho{300};
  /// Largest number of member messages of one rank that are kept. The oldest is dropped for a further one. A rank of
  /// which a call waits has sent a few messages of that call. All older messages belong to its earlier calls.
  static constexpr std::size_t kMostMemberMessages = 64;

  /// How a rank of another host has ended.
  struct End {
    std::string cause = {};       ///< How the wire noticed the end; empty while the rank is connected.
    std::uint64_t completed = 0;  ///< Number of the rank's last completed call, from its leave message.
    bool left = false;            ///< Whether the rank has sent a leave message.
    std::uint64_t wait = 0;       ///< Point-to-point wait that the rank has sent last.
    std::uint64_t echo = 0;       ///< Number of the newest ping that the rank has answered.
  };
  void receive(Rank from, std::string_view bytes);
  void send_records();
  /// Returns whether the wire may be given a message, because it does not fail if the receiver has ended.
  bool may_send_records() const noexcept { return !leaving_ || wire_.detects_peer_failure(); }
  void send_to_hosts(const std::string& bytes) noexcept;
  void post(Rank to, const std::string& bytes) noexcept;

  const RankView& view_;
  Wire& wire_;
  ArrivalTable& arrivals_;
  FirstFailure& failure_;
  std::atomic<bool> failure_sent_ = false;  // Whether the other hosts have the failure.
  bool leaving_ = false;
  std::uint64_t records_sent_ = 0;      // Number of the last call in which the newest records were sent.
  std::uint64_t all_records_sent_ = 0;  // Number of the last call in which all records were sent.
  std::uint64_t pings_ = 0;             // Number of the last ping.
  std::chrono::steady_clock::time_point call_begun_{};
  std::vector<End> ends_;   // By rank.
  std::vector<Rank> lost_;  // Lost ranks, in the order in which the wire has reported them.
  std::vector<std::vector<MemberMessage>> member_messages_;  // By sender.
};

}  // namespace collectives
