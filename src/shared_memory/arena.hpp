// The arena: the memory in which the ranks of one host meet. One sealed memfd, mapped by every local rank, holding
//
//   a header       who made it, and the abort block: the first failure of the communicator, in words
//   rank blocks    per rank: arrival records, progress counters; every polled word has 128 bytes and one writer
//   stage blocks   per rank and room: the counters of host stages; a room is where some of the ranks perform stages
//   directories    per rank: which memory it has allocated that others can map (segments.hpp)
//   GPU blocks     per rank: where its buffers on a GPU are, and how other processes open them (device/peers.hpp)
//   lines          per rank and room: a ring of slots for short vectors that travel inside the polled cache lines
//   staging        per rank and room: a ring of chunks through which long vectors are shown to the others
//   channels       per ordered pair: a few frames, for backends that send messages
//
// Staging gets its pages as it is used, and frames theirs, so a large arena costs address space, not memory. Nothing
// has a name in the file system: when the last process is gone, so is the arena, whatever ended it.
//
// Each rank holds a lock on one byte of the file (an open-file-description lock). The kernel drops it when the process
// ends, however it ends; asking for the lock is how the others learn of a death, across PID reuse and without a helper.
// A child that the process forks does not keep it (fork.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fork.hpp"
#include "core/signature.hpp"

namespace collectives {

/// Changes with everything that ranks must share to understand one another: layout of the arena, tags, messages.
inline constexpr std::uint64_t kProtocol = 18;

inline constexpr std::size_t kPolledBytes = 128;  ///< a cache line and its neighbour, which prefetchers fetch in pairs

/// A word that others poll: alone on its lines, written by one rank.
struct alignas(kPolledBytes) PolledWord {
  std::atomic<std::uint64_t> value{0};
};

/// What one rank published about one call. Written as the call begins.
struct alignas(64) ArrivalRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< 0: being written
  std::atomic<std::uint64_t> words[7]{};   ///< SignatureWords
};

/// How many calls back a rank's records reach: further than a root may run ahead of its readers.
inline constexpr std::size_t kRecords = 64;

/// Where one rank's buffers of one host stage are: an address in its own process, and the name of the shared segment
/// they lie in, 0 where they lie in none.
struct alignas(64) BufferRecord {
  std::atomic<std::uint64_t> tag{0};  ///< written last
  std::atomic<std::uint64_t> own{0}, own_name{0}, keep{0}, keep_name{0};
  std::atomic<bool> objects{false};  ///< of a GPU's: this rank cannot do the call in such a way
};

/// How many host stages a rank may be ahead of another: the length of everything that is numbered by stage.
inline constexpr std::uint64_t kStagesAhead = 64;

struct RankBlock {
  PolledWord arrived;    ///< sequence number of the newest call this rank has entered
  PolledWord completed;  ///< and of the newest it has finished
  PolledWord departed;   ///< 1 when it has left in good order
  PolledWord touching;   ///< 1 while it reads or writes the others' buffers
  PolledWord looked;     ///< when it last gave a sign of life: nanoseconds of the coarse clock
  PolledWord with_gpu;   ///< sequence number of the call in which it waits for its GPU; 0: it does not
  std::atomic<std::int32_t> process{0};
  std::atomic<std::uint64_t> probe_address{0}, probe{0};  ///< a word in its own memory, and what it holds
  ArrivalRecord records[kRecords];
};

/// Pieces of work that any rank may take, where there are more ranks than cores. Counted through all host stages.
struct ClaimBlock {
  PolledWord taken, done;
};

/// How far a rank has come in one host stage: so many chunks of it. The tag is written once, with the first chunk.
struct alignas(kPolledBytes) ChunkCount {
  std::atomic<std::uint64_t> tag{0}, chunks{0};
};

/// What a rank says in one room about the stages there.
struct StageBlock {
  PolledWord finished;  ///< host stages finished, ever
  PolledWord left;      ///< bytes of staging that it no longer reads, ever
  PolledWord worked;    ///< number of the newest host stage whose share this rank has done in the others' buffers
  PolledWord hidden;    ///< and of the newest that wanted its buffers where they are, and could not have them
  ClaimBlock claims;    ///< of all ranks in the room, if this is the first of them
  BufferRecord buffers[kStagesAhead];
  ChunkCount staged[kStagesAhead], combined[kStagesAhead];  ///< its chunks of staging, and those combined for its slice
};

/// The first failure. `state`: 0 none, 1 being written, 2 complete.
struct alignas(kPolledBytes) AbortBlock {
  std::atomic<std::uint32_t> state{0};
  std::uint32_t code = 0;
  std::int32_t peer = -1;
  char operation[96]{};
  char text[1024]{};
};

/// One direction between two ranks.
struct ChannelWords {
  PolledWord sent;      ///< messages handed over, ever; written by the sender
  PolledWord released;  ///< messages given back, ever; written by the receiver
};

/// What a rank says about one segment of memory that peers may map; see segments.hpp.
struct alignas(64) SegmentRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< odd: being written; another segment, another sequence
  std::atomic<std::uint64_t> pid{0}, fd{0}, token{0}, data{0};
  std::atomic<std::uint64_t> bytes{0};  ///< 0: withdrawn
};

inline constexpr std::size_t kSegmentRecords = 256;  ///< per rank

/// An allocation on a GPU as other processes open it.
struct alignas(64) GpuMemoryRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< another allocation, another sequence
  std::atomic<std::uint64_t> handle[8]{};  ///< Device::Handle; what is 0 has been withdrawn
};

inline constexpr std::size_t kGpuMemoryRecords = 64;  ///< per rank

/// What is done together by GPUs that reach into one another's memory.
struct GpuMeeting {
  BufferRecord buffers;  ///< where this rank's are, in its newest
  PolledWord worked;     ///< tag of the newest that its GPU has done its share of
};

/// What a rank says of its GPU.
struct GpuBlock {
  GpuMeeting call, step;  ///< whole calls, and Steps, which are counted otherwise
  GpuMemoryRecord memory[kGpuMemoryRecords];
};

struct ArenaShape {
  int ranks = 1;
  int rooms = 1;                 ///< that each rank has a place in; see StageRoom
  std::size_t inline_bytes = 0;  ///< payload of one slot of lines
  std::size_t chunk_bytes = 0;   ///< payload of the longest staging chunk
  std::size_t frame_bytes = 0;   ///< payload of one frame
  bool operator==(const ArenaShape&) const = default;
};

inline constexpr std::size_t kLineBytes = 64;  ///< one line: 56 bytes of payload, then its tag
inline constexpr std::size_t kLinePayload = 56;
inline constexpr std::uint64_t kLongestChunks = 4;  ///< a rank's staging holds so many of the longest chunks
inline constexpr std::uint64_t kFrames = 4;         ///< frames per channel
inline constexpr std::size_t kUnitHeader = 64;      ///< before every frame: tag, bytes

class Arena {
 public:
  /// Makes a new arena; the caller is local rank 0. Throws Error{system} saying what the system refused.
  static std::unique_ptr<Arena> create(const ArenaShape&);
  /// How another rank of this host finds it; good while this object lives.
  std::string invitation() const;
  /// Joins by invitation as local rank `self`. Ranks of the same process share one mapping.
  static std::unique_ptr<Arena> join(std::string_view invitation, const ArenaShape&, int self);
  /// Leaves in good order: others need not take this for a death. In a forked child the parent keeps its place.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int self() const noexcept { return self_; }
  int ranks() const noexcept { return shape_.ranks; }
  const ArenaShape& shape() const noexcept { return shape_; }

  AbortBlock& abort_block() const noexcept { return *reinterpret_cast<AbortBlock*>(base_ + abort_at_); }
  RankBlock& block(int local) const noexcept {
    return *reinterpret_cast<RankBlock*>(base_ + blocks_at_ + static_cast<std::size_t>(local) * sizeof(RankBlock));
  }
  SegmentRecord& segment(int local, std::size_t slot) const noexcept {
    return *reinterpret_cast<SegmentRecord*>(
        base_ + directories_at_ + (static_cast<std::size_t>(local) * kSegmentRecords + slot) * sizeof(SegmentRecord));
  }
  GpuBlock& gpu_block(int local) const noexcept {
    return *reinterpret_cast<GpuBlock*>(base_ + gpu_blocks_at_ + static_cast<std::size_t>(local) * sizeof(GpuBlock));
  }
  StageBlock& stage_block(int room, int local) const noexcept {
    return *reinterpret_cast<StageBlock*>(base_ + stage_blocks_at_ + place(room, local) * sizeof(StageBlock));
  }
  std::byte* lines(int room, int local, std::uint64_t slot) const noexcept {
    return base_ + lines_at_ + (place(room, local) * kStagesAhead + slot % kStagesAhead) * lines_bytes_;
  }
  /// Where the payloads of a rank's chunks are, and how many bytes there are.
  std::byte* staging(int room, int local) const noexcept {
    return base_ + staging_at_ + place(room, local) * staging_bytes_;
  }
  std::size_t staging_bytes() const noexcept { return staging_bytes_; }
  ChannelWords& channel(int from, int to) const noexcept {
    return *reinterpret_cast<ChannelWords*>(base_ + channels_at_ + channel_index(from, to) * channel_stride_);
  }
  std::byte* frame(int from, int to, std::uint64_t number) const noexcept {
    return base_ + channels_at_ + channel_index(from, to) * channel_stride_ + sizeof(ChannelWords) +
           number % kFrames * frame_stride_;
  }

  /// The process of a local rank.
  int process(int local) const noexcept { return block(local).process.load(std::memory_order_acquire); }
  /// Whether the communicator has failed.
  bool failed() const noexcept { return abort_block().state.load() != 0; }
  /// Whether the process (or thread) of a local rank still holds its place. One system call.
  bool alive(int local) const noexcept;

 private:
  struct Mapping;
  Arena(std::shared_ptr<Mapping>, const ArenaShape&, int self);
  std::size_t place(int room, int local) const noexcept {
    return static_cast<std::size_t>(room) * static_cast<std::size_t>(shape_.ranks) + static_cast<std::size_t>(local);
  }
  std::size_t channel_index(int from, int to) const noexcept {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(shape_.ranks) + static_cast<std::size_t>(to);
  }
  void hold_place();

  std::shared_ptr<Mapping> mapping_;
  std::byte* base_ = nullptr;
  ArenaShape shape_;
  int self_ = 0;
  OwnDescriptor place_;      // holds the lock
  std::uint64_t probe_ = 0;  // what the others read to see whether they can
  std::size_t abort_at_ = 0, blocks_at_ = 0, stage_blocks_at_ = 0, directories_at_ = 0, gpu_blocks_at_ = 0,
              lines_at_ = 0, lines_bytes_ = 0, staging_at_ = 0, staging_bytes_ = 0, channels_at_ = 0,
              channel_stride_ = 0, frame_stride_ = 0, total_ = 0;
};

}  // namespace collectives
