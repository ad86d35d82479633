// Arrival table: tells a rank which calls each rank of its communicator has entered.
//
// The ranks of a host publish their calls in the arena, the shared memory of the host, where each rank has a block.
// When a rank enters a call, it writes an arrival record to its block. The record holds the number of the call and its
// signature, the arguments on which all ranks must agree. One counter of the block holds the number of the newest call
// that the rank has entered. Another counter holds the number of the newest call that the rank has completed. The block
// also holds the heartbeat, the time at which the rank last checked its peers while it waited. Ranks of other hosts
// send arrival records as control messages, which travel separately from the data. The table keeps the newest record of
// each rank of another host.
//
// Each rank has an arrival table. A table writes the block of its own rank and only reads the other blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/signature.hpp"
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
  ArrivalTable(const RankView& view, Arena& arena);
  ArrivalTable(const ArrivalTable&) = delete;
  ArrivalTable& operator=(const ArrivalTable&) = delete;

  // ---- the own rank

  /// Writes the arrival record of this rank for a call.
  void arrive(std::uint64_t sequence, const SignatureWords& words) noexcept {
    ArrivalRecord& record = own_.records[sequence % kRecords];
    // A reader uses the words only if it reads the same sequence number before and after them.
    record.sequence.store(0, std::memory_order_relaxed);
#pragma GCC unroll 4
    for (std::size_t w = 0; w < kCommonWords; ++w) record.words[w].store(words[w], std::memory_order_release);
    if (words_of(words) > kCommonWords)
      for (std::size_t w = kCommonWords; w < words.size(); ++w)
        record.words[w].store(words[w], std::memory_order_release);
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
  /// Returns the number of the newest call that this rank has completed.
  std::uint64_t completed() const noexcept { return own_.completed.value.load(std::memory_order_relaxed); }

  // ---- all ranks

  /// Keeps the records of ranks of another host, unless they are older than those in the table. Ignores ranks that the
  /// communicator does not have.
  void add_records(std::uint64_t sequence, const std::vector<Arrived>& ranks);
  /// Returns the signature with which a rank has entered a call. Returns none if the rank has not entered the call, or
  /// if newer records have replaced the record of this call.
  std::optional<Signature> signature_of(Rank rank, std::uint64_t sequence) const;
  /// Returns true if a rank has entered the call or a later one.
  bool has_arrived(Rank rank, std::uint64_t sequence) const;
  /// Returns the records of this host's ranks for a call.
  std::vector<Arrived> records_of_host(std::uint64_t sequence) const;
  /// Returns the records of all ranks for a call. The record of this rank has the signature in `call`.
  std::vector<Arrived> records(const CallInfo& call) const;
  /// Returns the missing ranks of a call, which have not entered it: their number and the first of them.
  Missing first_missing(std::uint64_t sequence) const;
  /// Returns the rank for which the others most likely wait: the rank with the oldest heartbeat, if that is older than
  /// 200 ms. Otherwise returns the first missing rank, else the first rank that waits for its GPU, else kNoRank.
  Rank awaited_rank(std::uint64_t sequence) const;
  /// Returns the ranks that a call waits for, as text:
  ///
  ///   "rank 3 has not arrived"
  ///   "ranks 1, 3 have not arrived; no sign of life from rank 3"
  ///   "all ranks have arrived, but rank 3 has stopped there"
  ///   "all ranks have arrived"
  std::string missing_text(std::uint64_t sequence) const;
  /// Returns the newest call of each rank of this host in one line: "rank 2 after all_reduce #17; ranks 0-1 in barrier
  /// #18".
  std::string progress_text() const;

 private:
  struct Record {
    std::uint64_t sequence = 0;
    Signature signature;
  };
  std::optional<Signature> record_of_local(int local, std::uint64_t sequence) const;
  std::vector<Rank> missing(std::uint64_t sequence) const;
  /// Returns the ranks of this host that have not finished the call and whose heartbeat is older than 200 ms.
  std::vector<Rank> silent_ranks(std::uint64_t sequence) const;
  /// Returns the ranks of this host that are in the call and wait for their GPU only.
  std::vector<Rank> ranks_waiting_for_gpu(std::uint64_t sequence) const;

  const RankView& view_;
  Arena& arena_;
  RankBlock& own_;
  std::vector<Record> remote_;  // Newest record of each rank of another host, by rank.
};

}  // namespace collectives
