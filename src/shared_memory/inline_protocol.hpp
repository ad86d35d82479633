// Inline protocol: a short vector travels inside the cache lines that its readers poll.
//
// A line holds 56 bytes of payload and then a tag, which is written last. A line with the tag of the current collective
// is complete. One cache miss therefore delivers data and signal together, and misses of consecutive lines overlap.
// Every rank combines what it needs for itself, in rank order.
//
// There is no second synchronization. A slot is reused 64 collectives later, when all ranks have finished with it (see
// HostCollective).
//
// A collective of a few bytes ends when its line has crossed, unless preparing takes longer. prepare() therefore runs
// once for all collectives with the same operands. A payload of one line is combined from the line itself, without a
// copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class InlineProtocol {
 public:
  explicit InlineProtocol(const SubgroupMemory&);
  /// Publishes this rank's values for collective `number`, which selects the slot.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs what is possible now. Returns true when the collective has finished.
  bool progress();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }

 private:
  struct Span {
    std::size_t begin = 0, end = 0;  // in bytes of a payload
  };
  /// Part of a peer's payload that this rank needs.
  struct Wanted {
    int local;
    std::size_t first, end;  // in lines
    std::size_t bytes;       // end of the part in bytes of the payload
    std::byte* to;           // copy of the payload; null: it is read in its line
  };
  /// Bytes of this rank's own values, and their copy.
  struct Own {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  /// Elements that are adjacent in every payload and in the result.
  struct Piece {
    std::byte* to;
    std::size_t count, bytes;
  };

  void prepare(const HostTask&, const HostOperands&);
  Span combined(const HostTask&) const;
  void prepare_to_show(const HostTask&, const HostOperands&, Span mine);
  void prepare_to_combine(const HostTask&, const HostOperands&, Span mine);
  void write(Span);
  void prefetch(std::byte* next, Span) const;
  bool read(const Wanted&);
  void finish();
  std::byte* gathered(int local) { return gathered_.data() + static_cast<std::size_t>(local) * stride_; }

  std::size_t slot_of(std::uint64_t number) const;  ///< in bytes from the beginning of a rank's ring
  std::byte* slot(int local) const { return slots_[static_cast<std::size_t>(local)] + slot_at_; }

  const int self_, ranks_;
  std::vector<std::byte*> slots_;  // beginning of each rank's ring
  std::size_t slot_bytes_;
  std::size_t stride_;
  bool prefaulted_ = false;          // the peers' slots are prefaulted
  std::vector<std::byte> gathered_;  // copies of payloads of several lines

  // Results of prepare().
  std::uint64_t known_as_ = 0;
  bool signal_only_ = false;  // the collective is a barrier
  std::vector<Own> packed_;   // sources of the own payload, if they are not adjacent
  const std::byte* own_ = nullptr;
  std::size_t own_bytes_ = 0;
  Span shown_[2];
  std::size_t shown_bytes_ = 0;
  std::vector<Wanted> wanted_;
  Own kept_{};                 // own payload, if it is only copied
  std::vector<Piece> pieces_;  // one after another
  std::size_t pieces_at_ = 0;  // byte of a payload where the first piece begins
  Fold fold_;

  std::uint64_t tag_ = 0;
  std::size_t slot_at_ = 0;  // in bytes of every rank's ring
  std::size_t reading_ = 0, lines_read_ = 0;
  std::vector<Source> sources_;  // by rank, the part of its payload for the next piece
  std::uint64_t bytes_shown_ = 0;
};

}  // namespace collectives
