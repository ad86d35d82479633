// The watch: who has arrived at which call, who has gone, and the first failure of a communicator, made known to all.
//
// A call publishes its arrival record as it begins. Nobody looks at the records while things go well. A wait that takes
// long looks at them: a peer that is at the same call with another signature is a mismatch, one that holds its place no
// longer is lost, one that never came is named when the deadline passes. The first failure goes into the abort block of
// the arena and, between hosts, over the control channel, so every rank throws the same error.
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
  /// One call, as the watch sees it.
  struct CallInfo {
    std::uint64_t sequence = 0;
    Signature signature;
    std::string_view name = {};       ///< of the tensor, may be empty
    std::string_view operation = {};  ///< what to call it where it is no collective
  };

  FailureDetector(const RankView& view, Arena& arena, Wire* wire);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// Publishes the arrival record of a call this rank enters.
  void arrive(std::uint64_t sequence, const SignatureWords& words) noexcept {
    ArrivalRecord& record = mine_.records[sequence % kRecords];
    // A reader trusts the words only between two equal readings of the sequence number.
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
  /// Throws when a peer is lost. Part of check_peers(); a call that waits for nobody, as a broadcast's root may, would
  /// not notice. A system call per peer, every 10 ms at most.
  void check_lost_peers(const CallInfo& call);
  void complete(std::uint64_t sequence) noexcept { mine_.completed.value.store(sequence, std::memory_order_release); }
  /// Says for the others to read whether this rank waits for its GPU and for nobody else.
  void set_waiting_for_gpu(bool waits) noexcept;
  /// Tells the other hosts that this rank leaves, and after which call, where they would see it go.
  void announce_leave() noexcept;

  /// Throws the communicator's failure if it has one. One load while it has none.
  void check() {
    if (arena_.abort_block().state.load(std::memory_order_acquire) != 0) throw_failure();
  }
  /// The slow path of a wait for `call`: control messages, mismatches, lost peers. Throws what it finds.
  void check_peers(const CallInfo& call);
  /// Throws when a rank has arrived at `call` with another signature. Part of check_peers().
  void check_mismatch(const CallInfo& call);
  /// What a rank that has nothing to wait for should still notice: control messages. Throws the failure.
  void check_control();
  /// The same for the last time.
  void check_control_and_leave() {
    leaving_ = true;
    check_control();
  }
  /// The same at the beginning of a call, where a millisecond does not matter: often it costs next to nothing.
  void check_control_throttled();

  /// Makes a failure known to all; the first one stands. Does not throw.
  void report_failure(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept;
  /// The same from any thread, for a rank that may make no call afterwards: the other hosts hear it at once where the
  /// wire allows, otherwise from the first local rank that is in a call.
  void abort(std::string_view reason) noexcept;
  /// A tag of `call` was not as expected: names who passed what. Throws.
  [[noreturn]] void report_mismatch(const CallInfo& call, Rank peer);
  /// The deadline of `call` has passed after `waited`. Throws.
  [[noreturn]] void report_timeout(const CallInfo& call, std::chrono::nanoseconds waited);
  [[noreturn]] void throw_failure();
  /// After a failure: waits until no rank of this host is in the middle of a piece of work in others' buffers. None
  /// begins another one. A rank that has stopped in it is waited for half a second, and named in a warning.
  void wait_for_remote_access_end() noexcept;

  /// "all_reduce #17", "all_reduce #17 (fc1)"
  static std::string operation(const CallInfo& call);
  /// Whom a call waits for: "rank 3 has not arrived", "ranks 1, 3 have not arrived; no sign of life from rank 3", "all
  /// ranks have arrived, but rank 3 has stopped there", "all ranks have arrived".
  std::string missing_text(const CallInfo& call) const;
  /// The same as a number, for every look.
  Missing first_missing(const CallInfo& call) const;
  /// How far each rank of this host has come, in one line: "rank 2 after all_reduce #17; ranks 0-1 in barrier #18".
  std::string progress_text() const;

 private:
  enum class Standing { not_arrived, here, passed };
  struct Remote {
    std::uint64_t sequence = 0;
    Signature signature;
    std::string gone = {};        ///< how it was noticed; empty while it is there
    std::uint64_t completed = 0;  ///< calls, as it said when it left
    bool left = false;
  };
  Standing standing(Rank rank, std::uint64_t sequence, Signature& signature) const;
  bool record_of(int local, std::uint64_t sequence, Signature& signature) const;
  std::vector<Arrived> arrived(const CallInfo& call) const;
  std::vector<Rank> missing(const CallInfo& call) const;
  /// Of this host: those that have not finished the call and have given no sign of life for a while.
  std::vector<Rank> silent_ranks(const CallInfo& call) const;
  /// Of this host: those that are in the call and wait for their GPU.
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
  std::atomic<bool> failure_sent_ = false;  // to the other hosts
  bool leaving_ = false;
  std::uint64_t record_sent_ = 0;  // sequence number of the record last sent there
  std::chrono::steady_clock::time_point arrived_at_{};
  std::chrono::nanoseconds lost_checked_{}, control_checked_{};
  std::vector<Remote> remote_;  // what is known of ranks of other hosts
};

}  // namespace collectives
