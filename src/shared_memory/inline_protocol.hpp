// Inline protocol: the ranks of one host exchange a short vector inside the cache lines that they poll.
//
// A rank writes its values, the payload, into cache lines of shared memory. A line holds 56 bytes of payload and then a
// tag, which is written last. A line that has the tag of the current collective is complete. One cache miss of a reader
// therefore delivers both the data and the signal that they are complete. The processor handles the cache misses of
// consecutive lines at the same time. In a reduction, each rank that needs a result combines the values of all ranks
// for itself, in rank order.
//
// In an all-to-all, a rank sends one block of values to each rank. Each block begins with a line of its own. A rank
// thus reads only lines with blocks for itself.
//
// A slot is the memory for the lines of one rank in one collective. After reading, a rank need not tell the writer that
// it has read the lines, because a slot is reused only 64 collectives later. HostCollective guarantees that all ranks
// have read it by then.
//
// A collective of a few bytes takes little longer than the transfer of one cache line between two cores. To save time,
// prepare() runs once for all collectives with equal operands. This function computes everything that depends on the
// operands. A payload of one line is combined straight from that line, without a copy.
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
  /// Begins a collective: writes this rank's values to a slot. `number`: number of the collective in the subgroup,
  /// which selects the slot.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs the work that is possible now, without waiting. Returns true when the collective has finished.
  bool progress();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }

 private:
  /// Range of a payload, in bytes.
  struct Span {
    std::size_t begin = 0, end = 0;
  };
  /// Part of a peer's payload that this rank needs.
  struct Wanted {
    int local;               // rank that writes the payload
    std::size_t first, end;  // first line of the part, and the line after its last one
    std::size_t bytes;       // offset in bytes of the end of the part in the payload
    std::byte* to;           // memory to which the part is copied; null: the part is one line, which is not copied
  };
  /// This rank's own values, and the memory to which they are copied.
  struct Own {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  /// Slice of a scatter that the root writes to separate lines, because only one rank reads it. In an all-to-all, every
  /// rank writes one Parcel for each peer.
  struct Parcel {
    const std::byte* from;
    std::size_t first_line, bytes;
  };
  /// Elements that are combined together, because they are adjacent in every payload and in the result.
  struct Piece {
    std::byte* to;
    std::size_t count, bytes;
  };

  void prepare(const HostTask&, const HostOperands&);
  Span combined(const HostTask&) const;
  void prepare_to_show(const HostTask&, const HostOperands&, Span mine);
  void prepare_to_combine(const HostTask&, const HostOperands&, Span mine);
  void prepare_to_scatter(const HostTask&, const HostOperands&);
  void prepare_to_deal(const HostTask&, const HostOperands&);
  void write_line(std::byte* line, const std::byte* from, std::size_t bytes) const;
  void write(Span);
  void write(const Parcel&);
  void prefetch(std::byte* next, Span) const;
  bool read(const Wanted&);
  void finish();
  std::byte* gathered(int local) { return gathered_.data() + static_cast<std::size_t>(local) * stride_; }

  /// Returns the offset in bytes of the slot of a collective in the ring of each rank.
  std::size_t slot_of(std::uint64_t number) const;
  std::byte* slot(int local) const { return slots_[static_cast<std::size_t>(local)] + slot_at_; }

  const int self_, ranks_;
  std::vector<std::byte*> slots_;    // by rank: beginning of the rank's ring of slots
  std::size_t slot_bytes_;           // length of a slot
  std::size_t stride_;               // length of one copy in gathered_, in bytes
  bool prefaulted_ = false;          // whether this process has touched the pages of the peers' slots
  std::vector<std::byte> gathered_;  // by rank: copy of the rank's payload, if that has several lines

  // Results of prepare().
  std::uint64_t known_as_ = 0;      // name of the operands that are prepared; 0: none
  bool signal_only_ = false;        // whether the collective is a barrier, which has no payload
  bool shows_one_line_ = false;     // whether the payload is one line that lies in the source, and peers need all of it
  std::vector<Own> packed_;         // parts of this rank's payload that are copied together; empty: they are adjacent
  const std::byte* own_ = nullptr;  // this rank's payload
  std::size_t own_bytes_ = 0;       // length of this rank's payload in bytes
  Span shown_[2];                   // parts of this rank's payload that peers need
  std::size_t shown_bytes_ = 0;     // length of these parts
  std::vector<Parcel> parcels_;     // slices that this rank scatters, or its blocks for the peers in an all-to-all
  std::vector<Wanted> wanted_;      // parts of the peers' payloads that this rank needs
  Own kept_{};                      // this rank's payload and its place in the result, if nothing is combined
  std::vector<Piece> pieces_;       // pieces to combine, in the order of the payload
  std::size_t pieces_at_ = 0;       // offset in bytes of the first piece in each payload
  std::size_t terms_ = 0;           // number of ranks, from 0 on, whose payloads this rank combines
  Fold fold_;

  std::uint64_t tag_ = 0;        // tag of the current collective
  std::size_t slot_at_ = 0;      // offset in bytes of the collective's slot in each rank's ring
  std::size_t reading_ = 0;      // index in wanted_ of the next part to read
  std::size_t lines_read_ = 0;   // number of lines of the next part that have been read
  std::vector<Source> sources_;  // by rank: the next piece in the rank's payload
  std::uint64_t bytes_shown_ = 0;
};

}  // namespace collectives
