// Failure detector of a communicator: finds lost peers, calls with different arguments, and passed deadlines.
//
// When a rank enters a call, it writes an arrival record to the arena, the shared memory of its host. The record holds
// the number of the call and its signature, the arguments on which all ranks must agree. To save time, the rank sends
// its first data before it writes the record. A call that completes without waiting reads no records. A rank that has
// to wait reads the records of its host about every millisecond. Ranks of other hosts send their records as control
// messages once they have waited for 100 ms. A rank that waits throws an error in three cases:
//
//   mismatch    a peer has made another call than this rank, or a message from the peer belongs to another call
//   peer_lost   a peer has left the communicator, or its process has ended, before it finished the call
//   timeout     the deadline has passed; the error names the ranks without an arrival record
//
// Mismatches. Each rank keeps a running hash over all its calls. If two ranks have made different calls, their hashes
// differ at the newest call that both have entered. To find the first call that differs, the hosts send one another the
// records of their newest 64 calls. The text of the error should be equal on all ranks, so one rank composes
// it. A rank of the first host composes it without delay. Ranks of later hosts first wait for that text, for 300 ms per
// earlier host and 600 ms at most.
//
// Ends of processes. Each rank of a host holds an open-file-description lock on its byte of the arena. The kernel
// releases the lock however the process ends. A forked child gives the lock up at once (pthread_atfork). Every 10 ms,
// one waiting rank of the host checks the locks of all ranks and marks the ended ranks (arena.hpp). The wire, the
// transport between hosts, reports failed ranks of other hosts (Wire::poll_failed_peer). The price: a child made by the
// bare `clone` system call runs no fork handlers. It keeps the lock of its parent until it calls exec or ends.
//
// One error on all ranks. The first failure is stored in the abort block, a part of the arena. Ranks of the same host
// read the failure there. Ranks of other hosts receive the failure as a control message, which travels over the wire
// separately from the data.
//
// Parts. The detector decides when to check and what to throw. Three other classes hold what it needs:
//
//   ArrivalTable      the newest calls of all ranks, and texts that name the missing ones
//   FirstFailure      the failure in the abort block
//   ControlProtocol   the control messages between hosts, which travel separately from the data
//
// Buffers after a failure. A rank may read and write the buffers of other ranks directly, piece by piece. It raises its
// flag `remote_access` for each piece, and checks the abort block between two pieces. Before a rank throws an error, it
// waits until no other living rank of its host has raised this flag (wait_for_remote_access_end). The caller may then
// free the failed call's buffers. The price: a rank makes one ordered store per piece. A piece has at most 128 KiB, or
// 1 MiB if the ranks only copy and do not reduce.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/transport.hpp"
#include "core/signature.hpp"
#include "monitoring/arrival_table.hpp"
#include "monitoring/control_protocol.hpp"
#include "monitoring/first_failure.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class FailureDetector {
 public:
  FailureDetector(const RankView& view, Arena& arena, Wire* wire);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// Returns the table of calls that the ranks have entered.
  const ArrivalTable& arrivals() const noexcept { return arrivals_; }

  /// Writes the arrival record of this rank for a call.
  void arrive(std::uint64_t sequence, const RunningHash& hash, const SignatureWords& words) noexcept {
    arrivals_.arrive(sequence, hash, words);
    if (control_) control_->begin_call();
  }
  /// Writes the details of a call, before its arrival record (ArrivalTable::publish_details).
  void publish_details(std::uint64_t sequence, std::string_view name, std::string_view others) noexcept {
    arrivals_.publish_details(sequence, name, others);
  }
  /// Sends the record of this rank's newest call, which it has refused, to the other hosts.
  void send_refusal() noexcept;
  /// Throws if a peer was lost before it finished `call`. Also stores the current time as this rank's heartbeat, which
  /// shows peers that this rank runs. In a wait, check_peers() calls this function. A rank that does not wait, such as
  /// the root of a broadcast, must call it separately. Every 10 ms, one rank of the host makes one system call per rank
  /// of the host.
  void check_lost_peers(const CallInfo& call);
  void complete(std::uint64_t sequence) noexcept { arrivals_.complete(sequence); }
  /// Publishes whether this rank waits for its GPU only. Timeout errors of other ranks name that GPU.
  void set_waiting_for_gpu(bool waits) noexcept { arrivals_.set_waiting_for_gpu(waits); }
  /// Sends all ranks of other hosts a message that this rank leaves, with the number of its last completed call.
  /// Requires a wire. If the wire cannot detect failed peers, does nothing.
  void announce_leave() noexcept { control_->announce_leave(); }

  /// Throws an error if the communicator has failed. Otherwise costs one load.
  void check() {
    if (failure_.exists()) throw_failure();
  }
  /// Runs all checks of a wait for `call`: control messages, the abort block, mismatches and lost peers. Throws the
  /// first failure that it finds.
  void check_peers(const CallInfo& call);
  /// Throws if the calls of another rank are known to differ from those of this rank, up to and including `call`.
  /// check_peers() calls this function.
  void check_mismatch(const CallInfo& call);
  /// Reads control messages, then throws the failure of the communicator, if any. A rank that waits for no peer calls
  /// this function.
  void check_control();
  /// Throws the failure of the communicator, or if a rank has ended or left. Every rank must take part in a later call.
  /// `operation`: what this rank does between two calls.
  void check_between_calls(std::string_view operation);
  /// Calls check_control() for the last time. Afterwards this rank sends arrival records only if the wire detects
  /// failed peers.
  void check_control_and_leave();
  /// Calls check_control() if the last such call was at least 1 ms ago. A call that waits for peers begins with this.
  /// The check usually costs one reading of the coarse clock.
  void check_control_throttled();

  /// Stores a failure in the abort block. The first failure stays. Does not throw.
  void report_failure(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept;
  /// Reports Errc::aborted. May be called from any thread. Sends the failure to the other hosts at once if the wire
  /// accepts control messages from any thread. Otherwise a rank of this host sends it in its next call.
  void abort(std::string_view reason) noexcept;
  /// Throws Errc::mismatch because data from `peer` had another tag than `call`. Waits for the arrival records first.
  /// The error can then name the first call that differs and the arguments of each rank.
  [[noreturn]] void report_mismatch(const CallInfo& call, Rank peer);
  /// Throws Errc::timeout because the deadline of `call` has passed after `waited`. The error names the missing ranks.
  /// Blocks for up to 0.3 s if ranks of other hosts give no sign of life.
  [[noreturn]] void report_timeout(const CallInfo& call, std::chrono::nanoseconds waited);
  [[noreturn]] void throw_failure();
  /// Blocks while earlier hosts may report a failure that several hosts find at the same time. The wait takes 300 ms
  /// for each earlier host, and 600 ms at most. Throws the failure of another host if it arrives.
  void await_turn();
  /// Logs an error if the calls of other ranks differ from those of this rank, which leaves after its last call. Waits
  /// for no rank. Does nothing after a failure.
  void log_difference_at_end() noexcept;
  /// Blocks, after a failure, until no other living rank of this host accesses buffers of other ranks. After a failure,
  /// no rank begins a new piece. If the piece of a rank lasts more than half a second, a warning names that rank. The
  /// wait then ends for it.
  void wait_for_remote_access_end() noexcept;

 private:
  friend class MemberExchange;  // uses the control messages
  friend class PeerStates;      // reads the states of single ranks
  /// Waits until the records of the first call that differs are complete, at most for a bounded time, and throws
  /// Errc::mismatch. `longest`: longest wait for a record that shows a difference.
  [[noreturn]] void report_difference(const CallInfo& call, Rank peer, std::chrono::nanoseconds longest);
  /// Returns a text about a rank that has left after another number of calls than this rank has made; empty: none.
  std::string odd_leaver_text() const;
  /// Returns the number of the last call that a rank of this host has completed.
  std::uint64_t completed_of(int local) const noexcept;
  /// Throws Errc::peer_lost: "all_reduce #17: rank 3 was lost: " and how.
  [[noreturn]] void report_lost(const CallInfo& call, Rank rank, std::string_view how);

  const RankView& view_;
  Arena& arena_;
  ArrivalTable arrivals_;
  FirstFailure failure_;
  std::optional<ControlProtocol> control_;  // Empty if there is one host only.
  std::chrono::nanoseconds lost_checked_{}, control_checked_{};
};

}  // namespace collectives
