// Staged protocol: the ranks of one host exchange a long vector through staging memory.
//
// Staging memory is a part of the arena, the shared memory of the host. Each rank writes to its own ring in this
// memory, and reads the rings of its peers. A slice is the part of the vector that one rank owns. The vector is cut
// into chunks. The first chunk holds the first elements of every slice. The next chunk holds the next elements of every
// slice. A rank performs up to three moves on each chunk:
//
//   stage    copies the values that its peers need into its own ring
//   combine  reduces its own slice over all ranks; in an all-reduce, also writes the result to its own ring
//   collect  copies the slices of its peers from their rings into its result
//
// In an all-to-all, a rank stages blocks for its peers. Its move combine then copies the blocks for this rank from the
// rings of all peers, and reduces nothing.
//
// A one-shot all-reduce has no owners. Every rank stages its whole vector, and reduces the vectors of all ranks for
// itself. A one-shot all-reduce needs one synchronization instead of two. With three or more ranks, it moves more bytes
// than an all-reduce with owners.
//
// Overlap. The three moves progress independently: a rank stages one chunk, combines an earlier one, and collects a
// still earlier one. Each rank publishes two counters: the chunks that it has staged, and those that it has combined. A
// move begins a chunk when the move before it is a certain distance ahead. The distance depends on the number of cores:
//
// - If each rank has a core, the distance is about 256 KiB of the ring. The peers' data have usually arrived when a
// move needs them, although the speeds of ranks vary.
// - Oversubscribed ranks (more ranks than cores) have no distance. Each move runs as far as it can. A rank that loses
// its core has then done all that was possible without its peers.
//
// Price: twice the distance must fit into the ring. A chunk therefore takes at most a quarter of the ring, and long
// chunks reduce the distance.
//
// Broadcast and reduce have one root. If each rank has a core, short chunks let one rank write while another reads. A
// vector shorter than 8 chunks of usual length is therefore cut into up to 8 shorter chunks, of at least 2 KiB. A rank
// signals every chunk to its peers. If signals are slow, the vector has fewer chunks.
//
// The ring (staging_rings.hpp). Its memory is written again when no rank needs the previous content. If each rank has a
// core, even short vectors use the whole ring, one part after another. Reason: on an AMD EPYC, it takes 7 ns to write a
// cache line that another core holds. That is twice the time for a line of the common cache. The ring is about as large
// as a core's own cache, so that core has dropped the line before it is written again. Oversubscribed ranks gain
// nothing, and would touch more pages. In short collectives without a root, oversubscribed ranks use only the front of
// the ring: its first 256 KiB or more. The front holds at least 4 collectives as long as the current one, so that no
// rank waits for space.
//
// Streaming. If the ranks have no common cache, no ring is long enough. Each line travels from the writer's cache to
// the reader's and back, at 32 to 35 ns per line and direction. Vectors of TuningParameters::streamed_staging_bytes or
// more are then staged by streaming stores, which bypass the caches. Reading such a line from memory takes 4 to 10 ns.
// If the tuning does not know that, because the cores were near when it was measured, StagingStores finds it by time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tuning_parameters.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/staging_rings.hpp"
#include "shared_memory/staging_stores.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class Staged {
 public:
  /// Returns the length in bytes of the longest chunk, for which staging memory is laid out.
  static std::size_t longest_chunk(int ranks, const TuningParameters&);

  /// `oversubscribed`: there are more ranks than cores.
  Staged(const SubgroupMemory&, const TuningParameters&, bool oversubscribed);
  /// Begins a collective, and stages the first chunk if the ring has space. `number`: number of the collective in the
  /// subgroup.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs what is possible now. Returns true when the collective has finished.
  bool progress();
  /// Returns the number of bytes that this rank has written to its ring since construction.
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  /// Returns a counter that grows with each performed move.
  std::uint64_t moves() const noexcept { return moves_; }

 private:
  using Chunk = StagingRings::Chunk;
  /// Limits of the length of a chunk in bytes.
  struct ChunkLimits {
    std::size_t min = 0, max = 0;
  };
  inline void choose_stores();
  inline ChunkLimits chunk_limits(std::size_t bytes) const;
  inline void cut_into_chunks();
  inline void choose_positions();
  Range slice(int local, const Chunk&) const;
  Range segment_of(const Range&, const Chunk&) const;
  Range whole(const Chunk&) const;
  std::size_t place(int whose, int local) const;
  bool stage_next();
  bool stage(const Chunk&);
  bool combine(const Chunk&);
  bool take(const Chunk&);
  bool collect(const Chunk&);
  bool collect_one_shot(const Chunk&);
  bool collect_from_root(const Chunk&);
  void show(std::byte* to, const std::byte* from, std::size_t bytes, int reader);
  StagingStores& stores_for(int reader) { return staging_stores_[static_cast<std::size_t>(reader)]; }

  const SubgroupMemory& subgroup_;
  const TuningParameters& tuning_;
  const bool oversubscribed_;
  const int self_, ranks_;
  StagingRings rings_;
  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  bool one_shot_ = false;
  bool owners_ = false;    // whether ranks combine the slices that they own
  bool collects_ = false;  // whether every rank wants all slices
  Stores results_ = Stores::cached, to_staging_ = Stores::cached;
  Stores normal_stores_ = Stores::cached;      // stores that stage values, unless staging_stores_ uses streaming stores
  std::vector<StagingStores> staging_stores_;  // by the local rank that reads the copy; own rank: all peers read it
  bool times_stores_ = false;  // whether staging_stores_ chooses between normal_stores_ and streaming stores

  std::uint64_t chunks_ = 0;             // number of chunks of the current collective
  std::size_t stride_ = 0;               // length of a chunk in the ring, in bytes
  std::size_t segment_ = 0;              // number of elements of one slice in one chunk
  std::uint64_t apart_ = 0;              // distance between one move and the next, in chunks
  std::uint64_t ahead_ = 0;              // maximum number of chunks that are staged and not yet collected
  Chunk staged_, combined_, collected_;  // next chunk of each move
  std::vector<Source> sources_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
