// Arrival table: tells a rank which calls each rank of its communicator has entered.
//
// The ranks of a host publish their calls in the arena, the shared memory of the host, where each rank has a block.
// When a rank enters a call, it writes an arrival record to its block. The record holds the number of the call, the
// running hash of all calls so far, and the signature: the arguments that ranks compare. A block keeps the records of
// the newest 64 calls. The block also holds two call numbers: that of the newest call that the rank has entered, and
// that of the newest completed call. It also holds the heartbeat, the time at which the rank last checked its peers
// while it waited. Ranks of other hosts send arrival records as control messages, which travel separately from the
// data. The table keeps the newest 64 records of each rank of another host.
//
// The running hash covers all calls so far. If two ranks have made different calls, their hashes therefore differ at
// the newest call that both have entered. In that case, first_difference() (call_difference.hpp) searches the records
// for the first call that differs.
//
// Each rank has an arrival table. A table writes the block of its own rank and only reads the other blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/call_record.hpp"
#include "monitoring/process_page.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Description of one call: its number, its signature, and names for error texts.
struct CallInfo {
  std::uint64_t sequence = 0;
  Signature signature;
  std::string_view name = {};       ///< Name of the tensor; may be empty.
  std::string_view operation = {};  ///< Text that call_text() returns; empty: a text from the other fields.
};

/// Returns the call as text: `operation`, if it is not empty. Otherwise returns "all_reduce #17", or "all_reduce #17
/// (fc1)" with the name of the tensor.
std::string call_text(const CallInfo& call);

class ArrivalTable {
 public:
  /// Number of the newest calls of this rank whose hashes are kept. Over a wire, the root of broadcasts may be
  /// thousands of short calls ahead of a receiver. The receiver's newest arrival record is then older than all kRecords
  /// records of the root.
  static constexpr std::size_t kOwnHashes = 4096;

  ArrivalTable(const RankView& view, Arena& arena);
  ArrivalTable(const ArrivalTable&) = delete;
  ArrivalTable& operator=(const ArrivalTable&) = delete;

  // ---- the own rank

  /// Writes the details of a call, before its arrival record. `name`: names of tensors. `others`: the other details,
  /// encoded.
  void publish_details(std::uint64_t sequence, std::string_view name, std::string_view others) noexcept;
  /// Writes the arrival record of this rank for a call.
  void arrive(std::uint64_t sequence, const RunningHash& hash, const SignatureWords& words) noexcept {
    ArrivalRecord& record = own_.records[sequence % kRecords];
    // A reader uses the words only if it reads the same sequence number before and after them.
    record.sequence.store(0, std::memory_order_relaxed);
    record.before.store(hash.before, std::memory_order_release);
    record.after.store(hash.after, std::memory_order_release);
#pragma GCC unroll 4
    for (std::size_t w = 0; w < kCommonWords; ++w) record.words[w].store(words[w], std::memory_order_release);
    if (words_of(words) > kCommonWords)
      for (std::size_t w = kCommonWords; w < words.size(); ++w)
        record.words[w].store(words[w], std::memory_order_release);
    own_hashes_[sequence % kOwnHashes] = hash.after;
    record.sequence.store(sequence, std::memory_order_release);
    own_.arrived.value.store(sequence, std::memory_order_release);
  }
  void complete(std::uint64_t sequence) noexcept { own_.completed.value.store(sequence, std::memory_order_release); }
  /// Publishes whether this rank waits for nothing but its GPU.
  void set_waiting_for_gpu(bool waits) noexcept;
  /// Publishes `now`, a time of the coarse clock, as the heartbeat of this rank.
  void publish_heartbeat(std::chrono::nanoseconds now) noexcept;
  /// Returns the number of the newest call that this rank has entered.
  std::uint64_t arrived() const noexcept { return own_.arrived.value.load(std::memory_order_relaxed); }
  /// Returns the running hash with a call of this rank. Returns none if the rank has not entered the call, or has
  /// entered kOwnHashes calls since.
  std::optional<std::uint64_t> own_hash(std::uint64_t sequence) const noexcept {
    if (sequence > arrived() || sequence + kOwnHashes <= arrived()) return std::nullopt;
    return sequence == 0 ? 0 : own_hashes_[sequence % kOwnHashes];
  }
  /// Returns the number of the newest call that this rank has completed.
  std::uint64_t completed() const noexcept { return own_.completed.value.load(std::memory_order_relaxed); }

  // ---- all ranks

  /// Returns the ranks of the communicator, and the own rank.
  const RankGroup& world() const noexcept { return view_.world; }

  /// Keeps records of ranks of other hosts. Ignores ranks that are on this host or not in the communicator.
  void add_records(std::vector<Arrived> records);
  /// Returns the number of the newest call that a rank is known to have entered; 0: none.
  std::uint64_t newest_of(Rank rank) const noexcept;
  /// Returns the record of a rank's call. Returns none if the rank has not entered the call, or if a newer record has
  /// replaced this one.
  std::optional<CallRecord> record_of(Rank rank, std::uint64_t sequence) const;
  /// Returns true if a rank has entered the call or a later one.
  bool has_arrived(Rank rank, std::uint64_t sequence) const { return newest_of(rank) >= sequence; }
  /// Returns the newest records of this host's ranks, oldest first: at most `most` of each.
  std::vector<Arrived> records_of_host(std::size_t most) const;
  /// Returns the newest records of this rank, oldest first.
  std::vector<Arrived> own_records(std::size_t most) const;

  /// Returns true if the calls of a rank are known to differ from those of this rank.
  bool has_difference() const noexcept;
  /// Returns the missing ranks of a call, which have not entered it: their number and the first of them.
  Missing first_missing(std::uint64_t sequence) const;
  /// Returns the missing ranks of a call.
  std::vector<Rank> missing(std::uint64_t sequence) const;
  /// Returns the ranks of this host that have not finished the call and whose heartbeat is older than 200 ms.
  std::vector<Rank> silent_ranks(std::uint64_t sequence) const;
  /// Returns the rank for which the others most likely wait: the rank with the oldest heartbeat, if that is older than
  /// 200 ms. Otherwise returns the first missing rank, preferably one of `elsewhere`. Otherwise returns the first rank
  /// that waits for its GPU, else the first of `elsewhere`, else kNoRank. `elsewhere`: ranks of other hosts that give
  /// no sign of life.
  Rank awaited_rank(std::uint64_t sequence, const std::vector<Rank>& elsewhere = {}) const;
  /// Returns the ranks that a call waits for, as text:
  ///
  ///   "rank 3 has not arrived"
  ///   "rank 1 has not arrived; rank 1 waits to receive from rank 0, tag 3"
  ///   "ranks 1, 3 have not arrived; no sign of life from rank 3"
  ///   "all ranks have arrived, but rank 3 has stopped there"
  ///   "all ranks have arrived; no sign of life from rank 5"
  ///   "all ranks have arrived"
  ///
  /// Names the point-to-point messages for which missing ranks of this host wait, at most four of them. `elsewhere`:
  /// ranks of other hosts that give no sign of life.
  std::string missing_text(std::uint64_t sequence, const std::vector<Rank>& elsewhere = {}) const;
  /// Returns the newest call of each rank of this host in one line: "rank 2 after all_reduce #17; ranks 0-1 in barrier
  /// #18".
  std::string progress_text() const;

 private:
  /// Records of a rank of another host.
  struct RemoteRank {
    std::uint64_t newest = 0;
    std::vector<CallRecord> records;  // Ring of kRecords records, or empty: call n is at n % kRecords.
  };
  bool is_here(Rank rank) const noexcept { return view_.host_of(rank) == view_.grid.host; }
  std::optional<CallRecord> record_of_local(int local, std::uint64_t sequence) const;
  CallDetails details_of_local(int local, std::uint64_t sequence) const;
  const CallRecord* record_of_remote(Rank rank, std::uint64_t sequence) const noexcept;
  /// Returns the ranks of this host that are in the call and wait for their GPU only.
  std::vector<Rank> ranks_waiting_for_gpu(std::uint64_t sequence) const;

  const RankView& view_;
  Arena& arena_;
  RankBlock& own_;
  std::vector<std::uint64_t> own_hashes_ =
      std::vector<std::uint64_t>(kOwnHashes);  // Ring: call n is at n % kOwnHashes.
  std::vector<RemoteRank> remote_;             // By rank.
  bool remote_difference_ = false;             // Whether a received record differs from the own record of the call.
};

/// Appends the newest records of a rank to `to`, oldest first: at most `most`.
void append_records(const ArrivalTable& table, Rank rank, std::size_t most, std::vector<Arrived>& to);

}  // namespace collectives
