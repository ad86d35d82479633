// Staged: a long vector goes through chunks of staging memory, a few of them under way.
//
// A rank *stages* what others need of its own values, an owner *combines* what everybody staged of its slice and stages
// the result beside it, and everybody *collects* the slices it lacks. One shot leaves the owners out: everybody stages
// everything, and collecting is combining.
//
// A rank counts the chunks that it has staged, and those whose slice it has combined, each in a line of its own for
// every stage. The three moves go on independently, so that one chunk is copied in while another is summed and a third
// copied out. With a core each they keep a distance: a rank stages some chunks ahead of the one that it combines, and
// collects some behind it, so that what it wants of another is there, although neither is always as fast as the other.
// With more ranks than cores each move goes as far as it can, so that a rank that has to give up its core has done all
// that could be done without the others.
//
// The bytes of staging that chunks take are numbered through all stages. Staging is a ring of these bytes: memory is
// used again when everyone has left what was there. It is gone round even by those who could do with less: a line that
// another core has read is dear to write as long as that core still has it (7 ns on an AMD EPYC, twice what a line
// costs that comes from the common cache), and one round is about what a core's own cache holds. With more ranks than
// cores going round gains nothing, and costs every rank the first touch of each page; there short stages of everybody
// begin again at the front, as soon as nobody has to wait for that.
//
// Where the ranks have no cache in common no ring is long enough: whoever reads a line finds it in the writer's cache,
// and whoever writes it again finds it in the reader's, 32 to 35 ns for both together. What is staged then goes past
// the caches, and is read from memory, at 4 to 10 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/stage_room.hpp"

namespace collectives {

class Staged {
 public:
  /// What staging memory is to be laid out for, in bytes of the longest chunk.
  static std::size_t longest_chunk(int ranks, const Tuning&);

  /// `crowded`: more ranks than cores.
  Staged(const StageRoom&, const Tuning&, bool crowded);
  /// `number`: of the stage.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  bool advance();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  std::uint64_t moves() const noexcept { return moves_; }  ///< ever; of chunks

 private:
  /// Which of this stage, and where it begins: in bytes of staging since the beginning, and in the ring.
  struct Chunk {
    std::uint64_t number = 0, position = 0;
    std::size_t offset = 0;
  };
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
  bool room_for(const Chunk&);
  void populate_under(int local, const Chunk&);
  using Counts = ChunkCount (StageBlock::*)[kStagesAhead];
  ChunkCount& count(Counts counts, int local) const { return (room_.block(local).*counts)[number_ % kStagesAhead]; }
  bool staged(int local, const Chunk&);
  bool combined(int local, const Chunk&);
  bool published(Counts, int local, const Chunk&, std::uint64_t& known);
  void publish(Counts, const Chunk&);
  void show(std::byte* to, const std::byte* from, std::size_t bytes);
  std::byte* payload(int local, const Chunk&) const;

  const StageRoom& room_;
  const Tuning& tuning_;
  const bool crowded_;
  const int self_, ranks_;
  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  bool one_shot_ = false;
  bool owners_ = false;  // owners combine their slices
  bool collects_ = false;
  Stores results_ = Stores::cached, to_staging_ = Stores::cached;

  std::uint64_t number_ = 0, tag_ = 0;                        // of this stage
  std::uint64_t chunks_ = 0;                                  // of it
  std::uint64_t from_ = 0;                                    // bytes of staging taken before it, ever
  std::size_t stride_ = 0;                                    // bytes that a chunk takes
  std::size_t segment_ = 0;                                   // elements of one slice in one chunk
  std::uint64_t apart_ = 0, ahead_ = 0;                       // chunks between one move and the next; under way at most
  Chunk staged_, combined_, collected_;                       // the next of each move
  std::vector<std::uint64_t> known_staged_, known_combined_;  // chunks that each rank is known to have published
  std::vector<std::uint64_t> left_;                           // bytes each rank is known to have left, ever
  std::vector<std::size_t> populated_;                        // bytes of each rank's ring that have pages here
  std::vector<Source> sources_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
