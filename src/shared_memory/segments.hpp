// Names for memory: how a rank tells its peers, in 64 bits, where in memory that they can map a buffer is.
//
// Each rank has a directory in the arena: a table of the segments that it has announced, each at the first use in a
// call of this communicator. A name is a place in that table, some bits of how often the place was used, and an offset.
// A peer that meets a name maps the segment the first time (ranks of one process use it where it is) and finds it by
// two loads afterwards.
//
//   owner:  publishes name_of(buffer)          peer:  reach(owner, name, bytes) -> address here
//
// A segment that is freed is withdrawn in every directory at once, its pages go back to the system, and its place gets
// another sequence number, so that neither an old name nor an old mapping is ever taken for the new segment. Peers drop
// mappings of withdrawn segments before they make a new one: what stays until then is address space.
//
// Names are good while the owner keeps the memory, as it must while a call uses it.
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

/// Of one communicator. Threads: name_of() and reach() one call at a time; memory may be freed meanwhile by any thread.
class Segments final : private Heap::Watcher {
 public:
  explicit Segments(const Arena& arena);
  /// Withdraws what it announced, unmaps what it mapped.
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  /// The name under which this rank's peers reach `bytes` bytes at `data`; 0 when they cannot: ordinary memory, or one
  /// segment more than a directory holds. A few nanoseconds for the two segments met last and for the ordinary memory
  /// between them.
  std::uint64_t name_of(const void* data, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (heap_.changes() != seen_) refresh();
    for (const Interval& met : met_)
      if (at - met.begin < met.bytes) return met.name_of(at, bytes);
    met_[next_ ^= 1] = meet(at);
    return met_[next_].name_of(at, bytes);
  }

  /// Where `bytes` bytes that local rank `local` calls `name` are in this process; null when the name is 0 or of a
  /// segment that is no more, when they do not lie inside, or when the system refuses to map it (said once, by a
  /// warning).
  std::byte* reach(int local, std::uint64_t name, std::size_t bytes) {
    const std::size_t slot = slot_of(name);
    if (slot >= kSegmentRecords) return nullptr;
    const SegmentRecord& record = arena_.segment(local, slot);
    const std::uint64_t sequence = record.sequence.load(std::memory_order_acquire);
    Known& known = known_[static_cast<std::size_t>(local) * kSegmentRecords + slot];
    if (known.sequence != sequence) learn(known, record, local);
    const std::size_t offset = name & kOffsetMask;
    const bool inside = offset <= known.bytes && bytes <= known.bytes - offset;
    return inside && use_of(known.sequence) == (name >> kOffsetBits & kUseMask) ? known.data + offset : nullptr;
  }

 private:
  // From the top: place + 1, how often it was used, offset in bytes.
  static constexpr unsigned kOffsetBits = 40, kUseBits = 14;
  static constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
  static constexpr std::uint64_t kUseMask = (std::uint64_t{1} << kUseBits) - 1;
  static std::size_t slot_of(std::uint64_t name) {
    return static_cast<std::size_t>(name >> (kOffsetBits + kUseBits)) - 1;
  }
  static std::uint64_t use_of(std::uint64_t sequence) { return sequence / 2 & kUseMask; }

  /// Memory of which all has one answer. `name`: of its first byte; 0: ordinary.
  struct Interval {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t name = 0;
    std::uint64_t name_of(std::uintptr_t at, std::size_t count) const {
      return name != 0 && count <= bytes - (at - begin) ? name + (at - begin) : 0;
    }
  };
  void refresh();
  Interval meet(std::uintptr_t at);
  std::uint64_t announce(const Segment&);
  void segment_goes(const Segment&) noexcept override;
  void write(std::size_t slot, const SegmentAddress&) noexcept;

  /// A peer's segment as it is here, at that sequence number; no bytes when it cannot be reached.
  struct Known {
    std::uint64_t sequence = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Mapping mapping;  // none for one of this process
  };
  void learn(Known&, const SegmentRecord&, int local);
  void forget_what_is_gone();

  const Arena& arena_;
  Heap& heap_;
  const Maker maker_;  // a child of fork() leaves its parent's directory alone

  // Mine. The table is this object's own view of the heap, as of `seen_` changes; `slots_` is guarded by the heap's
  // lock.
  std::uint64_t seen_ = 0;
  std::vector<Interval> table_;
  std::array<Interval, 2> met_;
  std::size_t next_ = 0;
  std::map<std::uint64_t, std::size_t> slots_;  // by token

  // The peers', by rank and place.
  std::vector<Known> known_;
  bool said_ = false;
};

}  // namespace collectives
