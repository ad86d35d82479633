// Segment directory: gives buffers of this rank 64-bit names. Peers map the buffer by its name.
//
// A segment is memory of allocate() that other processes can map: one memfd, an anonymous file in memory. Each rank has
// a directory in the arena, the shared memory of the ranks of a host. The directory is a table of the segments that the
// rank has announced. A rank announces a segment when a call of this communicator first uses it. A name has three
// fields. The first field (10 bits) is the place of the segment in the table. The second (14 bits) is the use count of
// that place, which grows with each change of the place. The third (40 bits) is the offset of the buffer in the segment
// in bytes.
//
//   owner:  publishes name_of(buffer)          peer:  resolve(owner, name, bytes) -> address in its own process
//
// A peer maps a segment when it first resolves a name of that segment. After that, it resolves any name of the segment
// with a few loads from memory. A peer that is a thread of the owner's process uses the owner's mapping.
//
// If a segment is freed, its owner withdraws the segment at once from the directories of all communicators. The pages
// of the segment return to the system. The use count of the segment's place increases. A peer therefore does not take
// an old name or an old mapping for the next segment in that place. A peer unmaps withdrawn segments before it maps
// others. Until then, a withdrawn segment takes only address space.
//
// A name is valid until its memory is freed. The owner must not free memory that a call uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/fork.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/heap.hpp"

namespace collectives {

/// Segment directory of one rank in one communicator. Two threads must not call name_of() or resolve() at the same
/// time. Other threads may free memory during these calls.
class SegmentDirectory final : private Heap::Listener {
 public:
  explicit SegmentDirectory(const Arena& arena, SegmentTable which = SegmentTable::collectives);
  /// Withdraws the segments that this rank has announced, and unmaps those of its peers.
  ~SegmentDirectory();
  SegmentDirectory(const SegmentDirectory&) = delete;
  SegmentDirectory& operator=(const SegmentDirectory&) = delete;

  /// Returns the name by which peers resolve `bytes` bytes at `data`. Returns 0 for ordinary memory. Also returns 0 if
  /// the directory has no free place for the segment. For the two memory areas that were used last, the call takes a
  /// few nanoseconds.
  std::uint64_t name_of(const void* data, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (heap_.changes() != seen_) refresh();
    for (const Interval& recent : recent_)
      if (at - recent.begin < recent.bytes) return recent.name_of(at, bytes);
    recent_[next_ ^= 1] = look_up(at);
    return recent_[next_].name_of(at, bytes);
  }

  /// Returns the address, in this process, of the memory that local rank `local` has published as `name`. Returns null
  /// if the name is 0, its segment no longer exists, or `bytes` bytes exceed the segment. Also returns null if the
  /// system refuses to map the segment. The first refusal is logged as a warning.
  std::byte* resolve(int local, std::uint64_t name, std::size_t bytes) {
    const std::size_t slot = slot_of(name);
    if (slot >= kSegmentRecords) return nullptr;
    const SegmentRecord& record = arena_.segment(local, slot, which_);
    const std::uint64_t sequence = record.sequence.load(std::memory_order_acquire);
    Known& known = known_[static_cast<std::size_t>(local) * kSegmentRecords + slot];
    if (known.sequence != sequence) learn(known, record, local);
    const std::size_t offset = name & kOffsetMask;
    const bool inside = offset <= known.bytes && bytes <= known.bytes - offset;
    return inside && use_of(known.sequence) == (name >> kOffsetBits & kUseMask) ? known.data + offset : nullptr;
  }

 private:
  // Fields of a name from the top: place + 1, use count, offset in bytes.
  static constexpr unsigned kOffsetBits = 40, kUseBits = 14;
  static constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
  static constexpr std::uint64_t kUseMask = (std::uint64_t{1} << kUseBits) - 1;
  static std::size_t slot_of(std::uint64_t name) {
    return static_cast<std::size_t>(name >> (kOffsetBits + kUseBits)) - 1;
  }
  static std::uint64_t use_of(std::uint64_t sequence) { return sequence / 2 & kUseMask; }

  /// Memory area: one segment, or the ordinary memory between two segments. `name` is the name of the first byte, or 0
  /// for ordinary memory.
  struct Interval {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t name = 0;
    std::uint64_t name_of(std::uintptr_t at, std::size_t count) const {
      return name != 0 && count <= bytes - (at - begin) ? name + (at - begin) : 0;
    }
  };
  void refresh();
  Interval look_up(std::uintptr_t at);
  std::uint64_t announce(const Segment&);
  void segment_removed(const Segment&) noexcept override;
  void write(std::size_t slot, const SegmentAddress&) noexcept;

  /// A peer's segment in this process, at one sequence number. It has no bytes if it cannot be mapped.
  struct Known {
    std::uint64_t sequence = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Mapping mapping;  // none if the segment belongs to this process
  };
  void learn(Known&, const SegmentRecord&, int local);
  void forget_what_is_gone();

  const Arena& arena_;
  const SegmentTable which_;
  Heap& heap_;
  const OwnerProcess owner_process_;  // a child of fork() leaves its parent's directory alone

  // This rank's directory. table_ is a copy of the heap's segments after seen_ changes. The heap's lock guards slots_.
  std::uint64_t seen_ = 0;
  std::vector<Interval> table_;
  std::array<Interval, 2> recent_;
  std::size_t next_ = 0;
  std::map<std::uint64_t, std::size_t> slots_;  // by token

  // Directories of the peers, by rank and place.
  std::vector<Known> known_;
  bool warned_ = false;
};

}  // namespace collectives
