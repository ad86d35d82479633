// Staged protocol: a long vector passes through chunks of staging memory.
//
// Each rank has a ring of staging memory in the arena, the shared memory of the host. The vector is divided into
// slices, one per owner, and cut into chunks. A chunk holds some elements of every slice. Each chunk undergoes three
// steps, called moves:
//
//   stage    every rank copies the values that its peers need into its own ring
//   combine  the owner of a slice folds the values of all ranks; for an all-reduce it stages the result as well
//   collect  every rank copies the slices that it lacks from the rings of its peers
//
// One shot has no owners: every rank stages its whole vector, and collecting is combining. It needs one synchronization
// instead of two. Staging by slices moves fewer bytes from three ranks on.
//
// Overlap. A rank counts the chunks that it has staged and those that it has combined. Each collective has its own
// counters, and each counter has its own cache lines. The three moves progress independently: one chunk is copied in
// while a second is combined and a third is copied out. The distance between the moves depends on the cores:
//
// - Ranks with a core each keep the moves 256 KiB of staging apart. A rank stages ahead of the chunk that it combines,
// and collects behind it. Its peers' data are then ready, although the speeds of ranks vary.
// - Oversubscribed ranks keep no distance. Each move runs as far as it can. A rank that loses its core has then done
// all that was possible without its peers.
//
// Price: a chunk takes at most a quarter of the ring, and long chunks reduce the distance.
//
// Broadcast and reduce move data in one direction only. If ranks have a core each, short chunks let one side write
// while the other reads. A vector shorter than 8 chunks of the usual length is therefore cut into up to 8 shorter ones,
// of about 2 KiB or more. This pays because writing a line that another core has read is slow. Each chunk costs a
// signal. The longer a signal takes, the fewer chunks are made.
//
// The ring. Bytes of staging are numbered through all collectives. Memory is reused after all ranks have left its
// previous content. Ranks with a core each use the whole ring even for short vectors. A line that another core still
// caches takes 7 ns to write on an AMD EPYC, twice as long as a line from the common cache. The ring is about as large
// as a core's own cache or larger, so the line is no longer cached when the ring returns to it. Oversubscribed ranks
// gain nothing from a full pass, and each of them would touch every page for the first time. Their short collectives,
// if all ranks contribute, therefore restart at the front, the beginning of the ring. The front holds at least 4 of
// these collectives, so that no rank has to wait.
//
// Streaming. If the ranks have no common cache, no ring is long enough. A reader finds each line in the writer's cache,
// and the next writer finds it in the reader's: 32 to 35 ns per line for both. Data is then staged past the caches
// (TuningParameters::streamed_staging_bytes) and read from memory, at 4 to 10 ns per line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tuning_parameters.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class Staged {
 public:
  /// Returns the length in bytes of the longest chunk, for which staging memory is laid out.
  static std::size_t longest_chunk(int ranks, const TuningParameters&);

  /// `oversubscribed`: there are more ranks than cores.
  Staged(const SubgroupMemory&, const TuningParameters&, bool oversubscribed);
  /// Begins collective `number`, and stages its first chunk if possible.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs what is possible now. Returns true when the collective has finished.
  bool progress();
  /// Returns the bytes that this rank has ever staged.
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  std::uint64_t moves() const noexcept { return moves_; }  ///< number of times that chunks have moved, ever

 private:
  /// Number of a chunk in its collective, and its beginning: in bytes of staging ever taken, and in the ring.
  struct Chunk {
    std::uint64_t number = 0, position = 0;
    std::size_t offset = 0;
  };
  /// Bytes of the shortest and of the longest chunk.
  struct ChunkLimits {
    std::size_t least = 0, most = 0;
  };
  inline void choose_stores();
  inline ChunkLimits chunk_limits(std::size_t bytes) const;
  inline void cut_into_chunks();
  inline void choose_positions();
  void to_front(Chunk&) const;
  void wrap(Chunk&) const;
  void step(Chunk&) const;
  Range slice(int local, const Chunk&) const;
  Range whole(const Chunk&) const;
  std::size_t place(int whose, int local) const;
  bool stage_next();
  bool stage(const Chunk&);
  bool combine(const Chunk&);
  bool collect(const Chunk&);
  bool has_space_for(const Chunk&);
  void prefault_chunk(int local, const Chunk&);
  using Counts = ChunkCount (HostCollectiveBlock::*)[kCollectivesAhead];
  ChunkCount& count(Counts counts, int local) const {
    return (subgroup_.block(local).*counts)[number_ % kCollectivesAhead];
  }
  bool staged(int local, const Chunk&);
  bool combined(int local, const Chunk&);
  bool published(Counts, int local, const Chunk&, std::uint64_t& known);
  void publish(Counts, const Chunk&);
  void show(std::byte* to, const std::byte* from, std::size_t bytes);
  std::byte* payload(int local, const Chunk&) const;

  const SubgroupMemory& subgroup_;
  const TuningParameters& tuning_;
  const bool oversubscribed_;
  const int self_, ranks_;
  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  bool one_shot_ = false;
  bool owners_ = false;  // owners combine their slices
  bool collects_ = false;
  Stores results_ = Stores::cached, to_staging_ = Stores::cached;

  std::uint64_t number_ = 0, tag_ = 0;   // of the current collective
  std::uint64_t chunks_ = 0;             // number of chunks of the collective
  std::uint64_t from_ = 0;               // bytes of staging ever taken before the collective
  std::size_t stride_ = 0;               // bytes of staging per chunk
  std::size_t segment_ = 0;              // elements of one slice in one chunk
  std::uint64_t apart_ = 0, ahead_ = 0;  // chunks between one move and the next; most chunks in progress
  Chunk staged_, combined_, collected_;  // next chunk of each move
  std::vector<std::uint64_t> known_staged_, known_combined_;  // chunks that each rank is known to have published
  std::vector<std::uint64_t> left_;      // bytes of staging that each rank is known to have left, ever
  std::vector<std::size_t> prefaulted_;  // bytes of each rank's ring that this process has prefaulted
  std::vector<Source> sources_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
