// Staging rings: the staging memory of a subgroup, one ring of bytes per rank. Each rank writes chunks to its own ring,
// and reads chunks from the rings of its peers. A chunk is the range of a ring that a rank writes or reads as one unit.
// staged.hpp explains the content of a chunk.
//
// A position counts the bytes that have passed through a ring since construction. A chunk has the same position in all
// rings. Each rank publishes the position up to which it has finished reading staged data. A rank overwrites memory of
// its ring only when all peers have finished reading the previous content.
//
// In each collective, a rank publishes two counters: the chunks that it has staged, and those that it has combined. A
// reader keeps the last counters that it has read, and reads them again only if it needs a later chunk.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared_memory/arena.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class StagingRings {
 public:
  /// One chunk of the current collective.
  struct Chunk {
    std::uint64_t number = 0;    ///< number in the collective
    std::uint64_t position = 0;  ///< number of bytes that passed through the ring before this chunk, since construction
    std::size_t offset = 0;      ///< beginning of the chunk in the ring, in bytes

    /// Moves the chunk to the beginning of a ring of `ring` bytes. The position counts the skipped bytes as passed.
    void to_front(std::size_t ring) {
      position += ring - offset;
      offset = 0;
    }
    /// If the chunk of `stride` bytes would cross the end of the ring, moves it to the beginning of the ring.
    void wrap(std::size_t stride, std::size_t ring) {
      if (offset + stride > ring) to_front(ring);
    }
    /// Replaces the chunk by the next one.
    void to_next(std::size_t stride, std::size_t ring) {
      ++number;
      position += stride;
      offset += stride;
      wrap(stride, ring);
    }
  };

  explicit StagingRings(const SubgroupMemory&);
  /// Begins a collective with chunks of `stride` bytes. `number`: number of the collective in the subgroup. `tag`: its
  /// tag (host_operands.hpp).
  void start(std::uint64_t number, std::uint64_t tag, std::size_t stride) {
    number_ = number;
    tag_ = tag;
    stride_ = stride;
    std::ranges::fill(known_staged_, 0);
    std::ranges::fill(known_combined_, 0);
  }
  /// Returns the first chunk of the current collective, which follows the last chunk of the previous collective.
  Chunk first_chunk() const {
    Chunk first{0, from_, static_cast<std::size_t>(from_ % bytes())};
    first.wrap(stride_, bytes());
    return first;
  }
  void to_next(Chunk& chunk) const { chunk.to_next(stride_, bytes()); }
  /// Ends the collective. `next`: the chunk after the last chunk of the collective.
  void finish(const Chunk& next) { from_ = next.position; }

  /// Returns the length in bytes of each ring.
  std::size_t bytes() const { return subgroup_.staging_bytes(); }
  /// Returns the address of a chunk in the ring of rank `local`.
  std::byte* payload(int local, const Chunk& chunk) const { return subgroup_.staging(local) + chunk.offset; }
  /// Touches the pages of a chunk in the ring of rank `local` and some pages behind it, unless this process has done so
  /// before.
  void prefault_chunk(int local, const Chunk& chunk) {
    if (prefaulted_[static_cast<std::size_t>(local)] < chunk.offset + stride_) prefault_pages(local, chunk);
  }

  /// Returns whether no rank needs what this rank has staged earlier in the memory of `chunk`.
  bool has_space_for(const Chunk& chunk) {
    const std::uint64_t end = chunk.position + stride_;
    return end <= bytes() || all_have_left(end - bytes());
  }
  /// Publishes that this rank needs no chunk before `next` any more.
  void leave_chunks_before(const Chunk& next) {
    subgroup_.block(self_).left.value.store(next.position, std::memory_order_release);
  }

  /// Publishes that this rank has staged a chunk.
  void publish_staged(const Chunk& chunk) { publish(&HostCollectiveBlock::staged, chunk); }
  /// Publishes that this rank has combined its slice of a chunk.
  void publish_combined(const Chunk& chunk) { publish(&HostCollectiveBlock::combined, chunk); }
  /// Returns whether rank `local` has staged this chunk.
  bool staged(int local, const Chunk& chunk) {
    if (!published(&HostCollectiveBlock::staged, local, chunk, known_staged_[static_cast<std::size_t>(local)]))
      return false;
    // A rank that has begun this collective has finished the one before, and needs none of its chunks.
    std::uint64_t& left = left_[static_cast<std::size_t>(local)];
    left = std::max(left, from_);
    return true;
  }
  /// Returns whether rank `local` has combined its slice of this chunk.
  bool combined(int local, const Chunk& chunk) {
    return published(&HostCollectiveBlock::combined, local, chunk, known_combined_[static_cast<std::size_t>(local)]);
  }

 private:
  using Counts = ChunkCount (HostCollectiveBlock::*)[kCollectivesAhead];
  ChunkCount& count(Counts counts, int local) const {
    return (subgroup_.block(local).*counts)[number_ % kCollectivesAhead];
  }
  void publish(Counts counts, const Chunk& chunk) {
    ChunkCount& mine = count(counts, self_);
    mine.chunks.store(chunk.number + 1, std::memory_order_release);
    if (chunk.number == 0) mine.tag.store(tag_, std::memory_order_release);
  }
  /// Returns whether rank `local` has published that it has staged or combined this chunk, as `counts` states. `known`:
  /// the number of chunks that the rank had published at the last look.
  bool published(Counts counts, int local, const Chunk& chunk, std::uint64_t& known) {
    if (chunk.number >= known) {
      const ChunkCount& seen = count(counts, local);
      if (!tag_matches(seen.tag.load(std::memory_order_acquire), tag_, local)) return false;
      known = seen.chunks.load(std::memory_order_acquire);
      if (chunk.number >= known) return false;
    }
    // The rank that touches a page first gets it in its own part of the memory. The owner has touched these pages.
    prefault_chunk(local, chunk);
    return true;
  }
  bool all_have_left(std::uint64_t position);
  void prefault_pages(int local, const Chunk&);

  const SubgroupMemory& subgroup_;
  const int self_, ranks_;
  std::uint64_t number_ = 0, tag_ = 0;                        // number and tag of the current collective
  std::uint64_t from_ = 0;                                    // position at which the current collective begins
  std::size_t stride_ = 0;                                    // length of a chunk in the ring, in bytes
  std::vector<std::uint64_t> known_staged_, known_combined_;  // by rank: last counters that were read
  std::vector<std::uint64_t> left_;      // by rank: position up to which the rank needs no staged data any more
  std::vector<std::size_t> prefaulted_;  // by rank: bytes of the rank's ring that this process has prefaulted
};

}  // namespace collectives
