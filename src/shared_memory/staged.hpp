// Staged: a long vector goes through chunks of staging memory, a few of them under way.
//
// A rank *stages* what others need of its own values, an owner *combines* what everybody staged of its slice and stages
// the result beside it, and everybody *collects* the slices it lacks. One shot leaves the owners out: everybody stages
// everything, and collecting is combining.
//
// A chunk says by a tag in its header that it is staged, and by another that its owner's slice is combined. The three
// moves go on independently, each as far as it can, so that one chunk is copied in while another is summed and a third
// copied out, and a rank that has to give up its core has done all that could be done without the others.
//
// Chunks are numbered through all stages, and so are the bytes of staging that they take. Staging is a ring of these
// bytes: memory is used again when everyone has left what was there. It is gone round even by those who could do with
// less: a line that another core has read is dear to write as long as that core still has it (7 ns on an AMD EPYC,
// twice what a line costs that comes from the common cache), and one round is about what a core's own cache holds.
//
// Where the ranks have no cache in common no ring is long enough: whoever reads a line finds it in the writer's cache,
// and whoever writes it again finds it in the reader's, 32 to 35 ns for both together. What is staged then goes past
// the caches, and is read from memory, at 4 to 10 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction.hpp"
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
  void start(const HostTask&, const HostOperands&);
  bool advance();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  std::uint64_t moves() const noexcept { return moves_; }  ///< ever; of chunks

 private:
  Range slice(int local, std::uint64_t chunk) const;
  Range whole(std::uint64_t chunk) const;
  std::size_t place(int whose, int local) const;
  bool stage(std::uint64_t chunk);
  bool combine(std::uint64_t chunk);
  bool collect(std::uint64_t chunk);
  bool room_for(std::uint64_t chunk);
  bool staged(int local, std::uint64_t chunk);
  bool combined(int local, std::uint64_t chunk);
  void show(std::byte* to, const std::byte* from, std::size_t bytes);
  std::uint64_t position(std::uint64_t chunk) const;
  std::byte* payload(int local, std::uint64_t chunk) const;

  const StageRoom& room_;
  const Tuning& tuning_;
  const bool crowded_;
  const int self_, ranks_;
  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  bool one_shot_ = false;
  bool owners_ = false;  // owners combine their slices
  bool collects_ = false;

  std::uint64_t base_ = 0, chunks_ = 0;                      // chunks before this stage, and of it
  std::uint64_t from_ = 0, at_ = 0;                          // bytes of staging taken before it, ever and in the ring
  std::size_t stride_ = 0;                                   // bytes that a chunk takes
  std::uint64_t first_lap_ = 0, lap_ = 0;                    // chunks up to the end of the ring, and in all of it
  std::size_t segment_ = 0;                                  // elements of one slice in one chunk
  std::uint64_t staged_ = 0, combined_ = 0, collected_ = 0;  // chunks each move has dealt with
  std::vector<std::uint64_t> left_;                          // bytes each rank is known to have left, ever
  std::vector<Source> sources_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
