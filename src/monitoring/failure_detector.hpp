// Failure detector of a communicator.
//
// Each rank writes an arrival record (call number and signature) to the arena, the shared memory of the host, when a
// call begins. A record costs a few stores, and the rank sends its first data before that. The fast path of a call
// never reads records. A wait that lasts checks them every millisecond and raises one of three errors:
//
//   mismatch    a peer is in the call with the same number but with another signature
//   peer_lost   a peer has left the communicator, or its process has ended, before it finished the call
//   timeout     the deadline has passed; the error names the ranks without an arrival record
//
// Ends of processes. Each rank of a host holds an open-file-description lock on its byte of the arena. The kernel
// releases the lock however the process ends. A forked child gives the lock up at once (pthread_atfork). A check costs
// one system call per peer, and a wait makes it every 10 ms. The wire reports failed ranks of other hosts
// (Wire::poll_failed_peer). The price: a child made by the bare `clone` system call runs no fork handlers. It keeps the
// lock of its parent until it calls exec or ends.
//
// One error on all ranks. The abort block of the arena stores the first failure. Ranks of the same host read it there.
// Ranks of other hosts receive it as a control message.
//
// Buffers after a failure. A rank that works in buffers of other ranks raises the flag `remote_access` for each piece
// of work. It checks the abort block between two pieces. Before a rank throws an error, it waits until no other living
// rank of its host has this flag (wait_for_remote_access_end). The buffers of the failed call are then free. The price:
// one ordered store per piece. A piece is at most 128 KiB, or 1 MiB if nothing is combined.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/transport.hpp"
#include "core/signature.hpp"
#include "monitoring/process_page.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class FailureDetector {
 public:
  /// Identity of one call: number, signature and names for error texts.
  struct CallInfo {
    std::uint64_t sequence = 0;
    Signature signature;
    std::string_view name = {};       ///< Name of the tensor; may be empty.
    std::string_view operation = {};  ///< Text that replaces the name of the collective in errors, if not empty.
  };

  FailureDetector(const RankView& view, Arena& arena, Wire* wire);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// Writes the arrival record of this rank for a call.
  void arrive(std::uint64_t sequence, const SignatureWords& words) noexcept {
    ArrivalRecord& record = mine_.records[sequence % kRecords];
    // A reader uses the words only if it reads the same sequence number before and after them.
    record.sequence.store(0, std::memory_order_relaxed);
#pragma GCC unroll 4
    for (std::size_t w = 0; w < kCommonWords; ++w) record.words[w].store(words[w], std::memory_order_release);
    if (words_of(words) > kCommonWords)
      for (std::size_t w = kCommonWords; w < words.size(); ++w)
        record.words[w].store(words[w], std::memory_order_release);
    record.sequence.store(sequence, std::memory_order_release);
    mine_.arrived.value.store(sequence, std::memory_order_release);
    if (wire_ != nullptr) arrived_at_ = std::chrono::steady_clock::now();
  }
  /// Throws if a peer was lost before it finished `call`. Stores this rank's heartbeat. Every wait does this through
  /// check_peers(). A rank that waits for no peer, such as the root of a broadcast, has to call it itself. Makes one
  /// system call per peer of this host, at most every 10 ms.
  void check_lost_peers(const CallInfo& call);
  void complete(std::uint64_t sequence) noexcept { mine_.completed.value.store(sequence, std::memory_order_release); }
  /// Publishes whether this rank waits for its GPU only. Timeout errors of other ranks name that GPU.
  void set_waiting_for_gpu(bool waits) noexcept;
  /// Announces to all ranks of other hosts that this rank leaves, and the number of its last completed call. Requires a
  /// wire. Does nothing unless the wire detects failed peers.
  void announce_leave() noexcept;

  /// Throws the failure of the communicator, if any. Costs one load otherwise.
  void check() {
    if (arena_.abort_block().state.load(std::memory_order_acquire) != 0) throw_failure();
  }
  /// Runs all checks of a wait for `call`: control messages, the abort block, mismatches and lost peers. Throws the
  /// first failure that it finds.
  void check_peers(const CallInfo& call);
  /// Throws if a rank has entered `call` with another signature. check_peers() calls this function.
  void check_mismatch(const CallInfo& call);
  /// Reads control messages, then throws the failure, if any. Meant for a rank that waits for no peer.
  void check_control();
  /// Calls check_control() for the last time. Afterwards this rank sends arrival records only if the wire detects
  /// failed peers.
  void check_control_and_leave() {
    leaving_ = true;
    check_control();
  }
  /// Calls check_control() if the last such call was at least 1 ms ago. A call that waits for peers does this at its
  /// begin. It usually costs one reading of the coarse clock.
  void check_control_throttled();

  /// Stores a failure in the abort block. The first failure stays. Does not throw.
  void report_failure(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept;
  /// Reports Errc::aborted. May be called from any thread. Sends the failure to the other hosts at once if the wire
  /// accepts control messages from any thread. Otherwise a rank of this host sends it in its next call.
  void abort(std::string_view reason) noexcept;
  /// Throws Errc::mismatch because data from `peer` had another tag than `call`. Waits for the arrival records first.
  /// The error can then name the arguments of each rank.
  [[noreturn]] void report_mismatch(const CallInfo& call, Rank peer);
  /// Throws Errc::timeout because the deadline of `call` has passed after `waited`. The error names the missing ranks.
  [[noreturn]] void report_timeout(const CallInfo& call, std::chrono::nanoseconds waited);
  [[noreturn]] void throw_failure();
  /// Blocks, after a failure, until no other living rank of this host accesses buffers of other ranks. No rank begins a
  /// new piece of work after a failure. If the piece of a rank lasts more than half a second, a warning names that
  /// rank. The wait then ends for it.
  void wait_for_remote_access_end() noexcept;

  /// Returns the call as text: "all_reduce #17", or "all_reduce #17 (fc1)" with the name of the tensor.
  static std::string operation(const CallInfo& call);
  /// Returns the ranks that a call waits for, as text:
  ///
  ///   "rank 3 has not arrived"
  ///   "ranks 1, 3 have not arrived; no sign of life from rank 3"
  ///   "all ranks have arrived, but rank 3 has stopped there"
  ///   "all ranks have arrived"
  std::string missing_text(const CallInfo& call) const;
  /// Returns the missing ranks of a call: their number and the first of them.
  Missing first_missing(const CallInfo& call) const;
  /// Returns the newest call of each rank of this host in one line: "rank 2 after all_reduce #17; ranks 0-1 in barrier
  /// #18".
  std::string progress_text() const;

 private:
  enum class Standing { not_arrived, here, passed };
  struct Remote {
    std::uint64_t sequence = 0;
    Signature signature;
    std::string gone = {};        ///< How the wire noticed the end of the rank; empty while the rank is connected.
    std::uint64_t completed = 0;  ///< Number of the rank's last completed call, from its leave message.
    bool left = false;
  };
  Standing standing(Rank rank, std::uint64_t sequence, Signature& signature) const;
  bool record_of(int local, std::uint64_t sequence, Signature& signature) const;
  std::vector<Arrived> arrived(const CallInfo& call) const;
  std::vector<Rank> missing(const CallInfo& call) const;
  /// Returns the ranks of this host that have not finished the call and whose heartbeat is older than 200 ms.
  std::vector<Rank> silent_ranks(const CallInfo& call) const;
  /// Returns the ranks of this host that are in the call and wait for their GPU only.
  std::vector<Rank> ranks_waiting_for_gpu(const CallInfo& call) const;
  std::chrono::nanoseconds gathering_time() const noexcept;
  void check_lost_peers_on_other_hosts(const CallInfo& call);
  void send_failure() noexcept;
  void send_to_hosts(std::string_view text) noexcept;
  void poll_control();
  void send_records();

  const RankView& view_;
  Arena& arena_;
  RankBlock& mine_;
  Wire* wire_;
  std::atomic<bool> failure_sent_ = false;  // Whether the other hosts have the failure.
  bool leaving_ = false;
  std::uint64_t record_sent_ = 0;  // Number of the last call whose records were sent.
  std::chrono::steady_clock::time_point arrived_at_{};
  std::chrono::nanoseconds lost_checked_{}, control_checked_{};
  std::vector<Remote> remote_;  // State of each rank of another host, by rank.
};

}  // namespace collectives
