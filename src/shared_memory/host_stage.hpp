// Host stages: what the ranks of one host do together through shared memory, without messages.
//
// All of them are one pattern. The vector is divided into slices, one owner each. A rank *stages* what others need of
// its own values, an owner *combines* what everybody staged of its slice, and everybody *collects* the slices it lacks:
//
//   all_reduce      stage the slices of others, combine mine and stage the result, collect the others'
//   reduce_scatter  stage the slices of others, combine mine
//   all_gather      stage mine, collect the others'
//   barrier         stage nothing, wait for all
//
// Rooted collectives are the same with the root owning everything. Contributions are combined in rank order.
//
// Two protocols. *Inline*: a short vector travels in 64-byte lines of 56 bytes payload and a tag written last; a line
// with the right tag is complete, so one cache miss brings data and notice together. Two slots per rank, used in turn,
// need no acknowledgement: whoever writes slot k+2 has read slot k+1 of everybody, who have therefore left slot k.
// *Staged*: longer vectors go through chunks of staging memory with one counter per rank and phase, several chunks
// under way, so that one chunk is copied in while another is summed and a third copied out.
//
// A stage never blocks: advance() goes as far as it can and says whether it is finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction.hpp"
#include "shared_memory/arena.hpp"
#include "step.hpp"

namespace collectives {

/// What a host stage works on. Addresses are of element 0 of the vector, as if the buffer held all of it.
struct HostOperands {
  const std::byte* own = nullptr;  ///< this rank's values
  std::byte* keep = nullptr;       ///< where results go
  DataType type = DataType::f32;
  ReduceOp op;
  int finish_ranks = 0;  ///< see fold()
  bool raw = true;       ///< own values are contributions
  std::uint64_t tag = 0;
};

class HostStage {
 public:
  explicit HostStage(const Arena& arena);

  /// Begins a stage. `step` is a host Step; its `which` and parts stay valid until the stage is finished.
  void start(const Step& step, const HostOperands&);
  /// Goes as far as it can; true when finished. Throws Error{mismatch} without text when a peer's tag is of another
  /// call.
  bool advance();
  /// Bytes this rank has put into shared memory, ever.
  std::uint64_t bytes_staged() const noexcept { return bytes_staged_; }

 private:
  Range slice(int local) const;  // of the whole stage
  Range slice(int local, std::uint64_t chunk) const;
  bool combines() const { return kind_ != Step::Kind::host_all_gather; }
  bool collects() const { return kind_ != Step::Kind::host_reduce_scatter; }

  bool advance_inline();
  bool read_lines(int local);
  void write_lines(std::uint64_t slot);
  void finish_inline();

  bool advance_staged();
  bool stage(std::uint64_t chunk);
  bool combine(std::uint64_t chunk);
  bool collect(std::uint64_t chunk);
  bool all_past(PolledWord RankBlock::*counter, std::uint64_t least, bool only_owners, std::uint64_t chunk);
  const std::byte* chunk_of(int local, std::uint64_t chunk);

  const Arena& arena_;
  const int self_, ranks_;

  Step::Kind kind_{};
  Parts parts_;
  Peers which_;
  int only_ = -1;
  HostOperands with_;
  std::size_t element_ = 0;  // bytes
  bool inline_ = false;

  // Inline: slots used so far; the payloads of all ranks, side by side, as they come in.
  std::uint64_t slot_ = 0;
  std::vector<std::byte> payloads_;
  std::size_t payload_bytes_ = 0;
  int reading_ = 0;
  std::size_t line_ = 0;

  // Staged: chunks used so far by all stages together, chunks of this stage, position in the schedule, peers checked.
  std::uint64_t base_ = 0, chunks_ = 0, turn_ = 0;
  int phase_ = 0, peer_ = 0;
  std::size_t segment_ = 0;  // elements of one slice in one chunk
  std::vector<Source> sources_;
  std::uint64_t bytes_staged_ = 0;
};

/// Thrown inside the library when a tag shows a mismatched call; the communicator turns it into the full Error.
struct TagMismatch {
  Rank peer;  ///< local rank or rank, as the thrower counts
};

}  // namespace collectives
