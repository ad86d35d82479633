// Arena: the memory that the ranks of one host share. It is one sealed memfd, an anonymous file in memory whose size no
// process can change. Every rank of the host maps it. A subgroup is a set of ranks that perform collectives through the
// arena. It consists of all ranks of the host, of the ranks of one NUMA domain, or of one rank of each NUMA domain. The
// arena has these areas:
//
//   header         magic number, protocol version, random token and size; then the abort block with the
//                  first failure of the communicator, and the time of the latest search for ended ranks
//   rank blocks    per rank: counters of its progress, and arrival records: the number and the signature
//                  (collective, count, type ...) of each of its newest calls
//   member calls   per ordered pair of ranks: the newest call of create_group() of one rank that names the other
//   collectives    per rank and subgroup: counters and buffer addresses of intra-host collectives
//   directories    per rank: where peers find the rank's memory of allocate() (segment_directory.hpp)
//   GPU blocks     per rank: where its buffers on a GPU are, how peers open them, and whether its work is done
//   details        per rank: names and other texts of its newest calls, for error texts
//   lines          per rank and subgroup: a ring of slots of the inline protocol, whose payload travels inside
//                  the cache lines that peers poll
//   staging        per rank and subgroup: a ring of staging memory, through which long vectors are copied
//   channels       per ordered pair of ranks: a few frames, each with room for one message
//   messages       per ordered pair of ranks: lines and a ring for point-to-point messages
//
// The kernel allocates a page of the arena when a rank first touches it. A large arena therefore takes much address
// space, but memory only for pages that have been touched.
//
// Lifetime. The arena has no name in the file system. One rank creates the arena. The other ranks open the file as
// /proc/PID/fd/N, the descriptor of the creator. They check the arena's size, seals and random token. The arena
// vanishes with the last process that has it open, however that process ends. Ranks that are threads of one process
// share one mapping, which they find by the token. These ranks run the same code as ranks in processes. The thread
// sanitizer can therefore check that code. Price of /proc: ranks in different PID or user namespaces count as ranks of
// different hosts.
//
// Deaths. Each rank holds an open-file-description lock on one byte of the file. The kernel releases the lock when the
// process ends, for whatever reason. A peer detects the death by asking the kernel whether the byte is still locked. No
// helper process is needed. A reused PID misleads no peer. One rank of the host at a time asks about all ranks, by
// one system call per rank. That rank marks the ended ranks in their blocks. Reason: the kernel takes longer the more
// locks the file has. If each of p ranks asked about p ranks, the time would be proportional to p^3. A forked child
// inherits the descriptor that holds the lock, and closes it at once (fork.hpp). Price: a child made by the bare
// `clone` system call keeps its parent's lock until the child calls exec or ends. Reason: `clone` runs no fork
// handlers, which close the descriptor.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fork.hpp"
#include "core/call_record.hpp"

namespace collectives {

/// Version of the formats that must be equal on all ranks: layout of the arena, tags and messages. A change of any
/// format increases the version by 1.
inline constexpr std::uint64_t kProtocol = 26;

/// Bytes and alignment of a polled word: two cache lines, because processors prefetch lines in pairs.
inline constexpr std::size_t kPolledBytes = 128;

/// Word that ranks poll, that is, read repeatedly until it changes. Its cache lines hold no other data. A core's copy
/// of these lines therefore stays valid until the word changes.
struct alignas(kPolledBytes) PolledWord {
  std::atomic<std::uint64_t> value{0};
};

/// Number, running hash and signature of one call, which a rank publishes when it enters the call. A peer that waits
/// long compares this record with its own record of the call. The first cache line holds all fields of a call that is
/// not compressed.
struct alignas(64) ArrivalRecord {
  std::atomic<std::uint64_t> sequence{0};          ///< number of the call; 0 while the record is written
  std::atomic<std::uint64_t> before{0}, after{0};  ///< running hash before the call, and with it (RunningHash)
  std::atomic<std::uint64_t> words[7]{};           ///< signature of the call (SignatureWords)
};

/// Encoded details of one call (call_record.hpp). A call without details writes none.
struct alignas(64) DetailRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< number of the call; 0 while the record is written
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> words[kDetailBytes / 8]{};
};

/// Number of arrival records per rank: those of its newest 64 calls. Call n overwrites the record of call n - 64, which
/// no peer needs any more. Reason: a rank is never 64 calls ahead of its peers, not even as the root of broadcasts.
inline constexpr std::size_t kRecords = 64;

/// Location of one rank's buffers in one intra-host collective, which ranks perform through shared memory. The
/// addresses are valid in the rank's own process. Peers map a buffer by its name (segment_directory.hpp). A name is 0
/// if peers cannot map the buffer.
struct alignas(64) BufferRecord {
  std::atomic<std::uint64_t> tag{0};  ///< number and signature of the collective, written after the other fields
  std::atomic<std::uint64_t> source{0}, source_name{0}, destination{0}, destination_name{0};
  std::atomic<bool> objects{false};  ///< for GPU buffers: whether this rank cannot perform the planned device path
};

/// Maximum number of intra-host collectives by which a rank may be ahead of another rank. Each ring with one place per
/// collective has this number of places.
inline constexpr std::uint64_t kCollectivesAhead = 64;

/// Number of 8-byte words of a MemberBlock for one piece of a text, for the ranks of a communicator as text, and for a
/// refusal, which contains two such texts.
inline constexpr std::size_t kMemberPieceWords = 512, kMemberListWords = 64,
                             kMemberTextWords = 2 * kMemberListWords + 16;

/// Refusal of a call of create_group(), because two ranks have passed different lists under its name.
struct RefusalRecord {
  std::atomic<std::uint64_t> sequence{0};               ///< odd while the record is written
  std::atomic<std::uint64_t> call{0};                   ///< MemberBlock::call of the refused call; 0: there was none
  std::atomic<std::uint64_t> name{0};                   ///< hash of its name
  std::atomic<std::uint64_t> text[kMemberTextWords]{};  ///< both ranks and lists, as text that ends with 0
};

/// Call of create_group() on one rank, and its texts for the other members of the communicator (member_exchange.hpp).
struct MemberBlock {
  PolledWord call;   ///< number of the call among all calls of the rank, from 1; 0: the rank is in no call
  PolledWord shown;  ///< number of the newest piece that the rank shows, from 1; 0: it has shown none
  PolledWord taken;  ///< number of the newest piece that it has read from all members of this host
  std::atomic<std::uint64_t> name{0};      ///< hash of the name
  std::atomic<std::uint64_t> creation{0};  ///< hash of the name and the ranks of the communicator
  std::atomic<std::uint64_t> left{0};      ///< bytes of the text from the shown piece on
  std::atomic<std::uint64_t> piece[kMemberPieceWords]{};
  std::atomic<std::uint64_t> list[kMemberListWords]{};  ///< ranks of the communicator, as text that ends with 0
  RefusalRecord refusal;  ///< newest refusal, which later calls that succeed do not change
};

/// Newest call of create_group() on one rank whose list contains another rank.
struct MemberCall {
  std::atomic<std::uint64_t> call{0};          ///< MemberBlock::call of that call; 0: there was none
  std::atomic<std::uint64_t> number{0};        ///< number of the call between the two ranks (member_exchange.hpp)
  std::atomic<std::uint64_t> failed{0};        ///< number of the newest of these calls that has failed; 0: none
  std::atomic<std::uint64_t> first_failed{0};  ///< rank whose call failed first, as far as this rank knew
};

/// Values of RankBlock::departed: the rank has destroyed its communicator, and a peer has found that its process ended.
inline constexpr std::uint64_t kHasLeft = 1, kHasEnded = 2;

struct RankBlock {
  PolledWord arrived;          ///< number of the newest call that this rank has entered
  PolledWord completed;        ///< number of the newest call that this rank has finished
  PolledWord departed;         ///< kHasLeft or kHasEnded; 0: neither is known
  PolledWord remote_access;    ///< 1 while this rank reads or writes buffers of its peers
  PolledWord message_access;   ///< 1 while this rank reads or writes buffers of a peer for a point-to-point message
  PolledWord message_wait;     ///< point-to-point message for which this rank waits (MessageWait); 0: none
  PolledWord heartbeat;        ///< latest sign of life of this rank, in nanoseconds of the coarse clock
  PolledWord waiting_for_gpu;  ///< number of the call in which this rank waits for its GPU; 0: none
  PolledWord ended;            ///< place among the ranks that peers have found to have ended or left, from 1; 0: none
  std::atomic<std::int32_t> process{0};
  /// address of a word in its own memory, and the value of that word: peers try whether the kernel lets them read it
  std::atomic<std::uint64_t> probe_address{0}, probe{0};
  ArrivalRecord records[kRecords];
  MemberBlock member;
};

/// Numbers of pieces of vectors that ranks have claimed and finished, over all zero-copy collectives. To claim a piece
/// is to reserve its work. Ranks claim pieces only if the host has more ranks than cores (zero_copy.hpp).
struct ClaimBlock {
  PolledWord taken, done;
};

/// Number of chunks that a rank has published per collective. A chunk is one unit of the staging ring. The tag is
/// written once, with the first chunk.
struct alignas(kPolledBytes) ChunkCount {
  std::atomic<std::uint64_t> tag{0}, chunks{0};
};

/// Progress of one rank in the collectives of one subgroup.
struct HostCollectiveBlock {
  PolledWord finished;  ///< number of collectives that the rank has finished since construction
  PolledWord left;      ///< bytes of staging, since construction, that it no longer reads
  PolledWord worked;    ///< number of the newest zero-copy collective whose share it has done
  PolledWord hidden;    ///< number of the newest zero-copy collective in which peers could not map its buffers
  PolledWord core;      ///< 1 + core on which the rank last began a broadcast or scatter as root; 0: unknown
  ClaimBlock claims;    ///< claims of all ranks of the subgroup, which lie in the block of its first rank
  BufferRecord buffers[kCollectivesAhead];
  ChunkCount staged[kCollectivesAhead],
      combined[kCollectivesAhead];  ///< chunks that it has staged, and chunks of its slice that it has combined
};

/// The first failure. `state`: 0 none, 1 being written, 2 complete.
struct alignas(kPolledBytes) AbortBlock {
  std::atomic<std::uint32_t> state{0};
  std::uint32_t code = 0;
  std::int32_t peer = -1;
  char operation[96]{};
  char text[1024]{};
};

/// Counters of one direction between two ranks.
struct ChannelWords {
  PolledWord sent;      ///< messages sent, ever; written by the sender
  PolledWord released;  ///< messages released, ever; written by the receiver
};

/// Address of one segment, memory of allocate() that peers of its owner may map; see segment_directory.hpp.
struct alignas(64) SegmentRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< odd while the record is written; each segment has another sequence
  std::atomic<std::uint64_t> pid{0}, fd{0}, token{0}, data{0};
  std::atomic<std::uint64_t> bytes{0};  ///< 0: withdrawn
};

inline constexpr std::size_t kSegmentRecords = 256;  ///< maximum number of segments that a rank announces at a time

/// Tables of segments of one rank. Collectives and point-to-point calls have one each, because two threads may make
/// them at the same time.
enum class SegmentTable : std::uint8_t { collectives, messages };
inline constexpr std::size_t kSegmentTables = 2;

/// Handle by which other processes open a GPU allocation.
struct alignas(64) GpuMemoryRecord {
  std::atomic<std::uint64_t> sequence{0};  ///< each allocation has another sequence
  std::atomic<std::uint64_t> handle[8]{};  ///< Device::Handle; all 0: withdrawn
};

inline constexpr std::size_t kGpuMemoryRecords = 64;  ///< maximum number of allocations that a rank publishes at a time

/// Synchronization of GPUs that access one another's memory.
struct GpuSync {
  BufferRecord buffers;  ///< this rank's buffers in the newest operation
  PolledWord worked;     ///< tag of the newest operation whose share its GPU has done
};

/// Everything that a rank publishes about its GPU.
struct GpuBlock {
  GpuSync call, step;  ///< synchronization of whole calls, and of Steps (step.hpp), which are numbered separately
  GpuMemoryRecord memory[kGpuMemoryRecords];
};

inline constexpr std::size_t kLinePayload = 56;  ///< bytes of payload in one line

/// Cache line of a message channel: payload, then a stamp, which is written last.
struct alignas(64) MessageLine {
  std::byte payload[kLinePayload];
  std::atomic<std::uint64_t> stamp{0};  ///< number of the line since construction, from 1
};

/// Copy of one long point-to-point message, on which sender and receiver work together (direct_copy.hpp). The receiver
/// writes it. Both ranks claim and finish pieces.
struct SharedCopy {
  PolledWord claims;  ///< number of the copy in the upper half, number of claimed pieces in the lower half
  PolledWord done;    ///< number of finished pieces
  alignas(kPolledBytes) std::atomic<std::uint64_t> id{0};  ///< number of the message at its sender
  std::atomic<std::uint64_t> address{0}, name{0};          ///< destination, as a RemoteBuffer
  std::atomic<std::uint64_t> pieces{0}, piece_bytes{0};
};

inline constexpr std::uint64_t kMessageLines = 64;           ///< lines of one message channel
inline constexpr std::size_t kMessageRingBytes = 128 << 10;  ///< bytes of the short ring of one message channel

/// Returns the length in bytes of the long ring of a message channel. The long rings to one rank take 8 MiB, unless the
/// host has more than 64 ranks. A ring of more than 2 MiB saves no more time.
constexpr std::size_t long_ring_bytes(std::size_t ranks) {
  constexpr std::size_t kToOneRank = 8 << 20, kShortest = 128 << 10, kLongest = 2 << 20;
  return std::clamp(std::bit_floor(kToOneRank / ranks), kShortest, kLongest);
}

/// Memory of the point-to-point messages from one rank to another.
struct MessageChannel {
  PolledWord lines_read;    ///< lines read, ever; written by the receiver
  PolledWord ring_read[2];  ///< bytes of the short and of the long ring read, ever; written by the receiver
  PolledWord matched;       ///< bytes of eager messages that receives have taken, ever; written by the receiver
  SharedCopy copy;
  MessageLine lines[kMessageLines];
  alignas(4096) std::byte ring[kMessageRingBytes];  ///< short ring: payloads that are too long for lines

  /// Returns the long ring, which lies behind the channel. `ranks`: number of ranks of the host.
  std::span<std::byte> long_ring(int ranks) noexcept {
    return {reinterpret_cast<std::byte*>(this + 1), long_ring_bytes(static_cast<std::size_t>(ranks))};
  }
};

/// Numbers that determine the layout of an arena. They are equal on all ranks of the host.
struct ArenaShape {
  int ranks = 1;
  int subgroups = 1;             ///< subgroups that each rank has memory for; see SubgroupMemory
  std::size_t inline_bytes = 0;  ///< payload in bytes of one slot of lines
  std::size_t chunk_bytes = 0;   ///< payload in bytes of the longest chunk, the unit in which vectors are staged
  std::size_t frame_bytes = 0;   ///< payload in bytes of one frame
  bool operator==(const ArenaShape&) const = default;
};

inline constexpr std::size_t kLineBytes = 64;       ///< bytes of one line, a cache line: the payload, then its tag
inline constexpr std::uint64_t kLongestChunks = 4;  ///< number of the longest chunks that a rank's staging holds
inline constexpr std::uint64_t kFrames = 4;         ///< frames per channel
inline constexpr std::size_t kUnitHeader = 64;      ///< bytes before every frame: its tag and length

class Arena {
 public:
  /// Creates an arena. The caller becomes local rank 0. Throws Error{system} with the call that the system refused.
  static std::unique_ptr<Arena> create(const ArenaShape&);
  /// Returns the handle by which the host's other ranks join. It is valid while this object lives.
  std::string handle() const;
  /// Joins the arena of a handle as local rank `self`. Ranks of one process share one mapping. Throws Error{system}.
  static std::unique_ptr<Arena> join(std::string_view handle, const ArenaShape&, int self);
  /// Announces that the rank leaves its communicator. Peers then do not report the end of its process as a failure. A
  /// forked child announces nothing, because its parent is still a member.
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
  /// Returns the newest call of create_group() on `from` that names `to`.
  MemberCall& member_call(int from, int to) const noexcept {
    return *reinterpret_cast<MemberCall*>(base_ + member_calls_at_ + place(from, to) * sizeof(MemberCall));
  }
  SegmentRecord& segment(int local, std::size_t slot, SegmentTable table = SegmentTable::collectives) const noexcept {
    const std::size_t tables = static_cast<std::size_t>(local) * kSegmentTables + static_cast<std::size_t>(table);
    return *reinterpret_cast<SegmentRecord*>(base_ + directories_at_ +
                                             (tables * kSegmentRecords + slot) * sizeof(SegmentRecord));
  }
  GpuBlock& gpu_block(int local) const noexcept {
    return *reinterpret_cast<GpuBlock*>(base_ + gpu_blocks_at_ + static_cast<std::size_t>(local) * sizeof(GpuBlock));
  }
  HostCollectiveBlock& host_collective_block(int subgroup, int local) const noexcept {
    return *reinterpret_cast<HostCollectiveBlock*>(base_ + host_collective_blocks_at_ +
                                                   place(subgroup, local) * sizeof(HostCollectiveBlock));
  }
  DetailRecord& detail(int local, std::uint64_t sequence) const noexcept {
    return *reinterpret_cast<DetailRecord*>(base_ + details_at_ +
                                            (static_cast<std::size_t>(local) * kRecords + sequence % kRecords) *
                                                sizeof(DetailRecord));
  }
  std::byte* lines(int subgroup, int local, std::uint64_t slot) const noexcept {
    return base_ + lines_at_ + (place(subgroup, local) * kCollectivesAhead + slot % kCollectivesAhead) * lines_bytes_;
  }
  /// Returns the payloads of a rank's chunks, staging_bytes() of them.
  std::byte* staging(int subgroup, int local) const noexcept {
    return base_ + staging_at_ + place(subgroup, local) * staging_bytes_;
  }
  std::size_t staging_bytes() const noexcept { return staging_bytes_; }
  ChannelWords& channel(int from, int to) const noexcept {
    return *reinterpret_cast<ChannelWords*>(base_ + channels_at_ + place(from, to) * channel_stride_);
  }
  std::byte* frame(int from, int to, std::uint64_t number) const noexcept {
    return base_ + channels_at_ + place(from, to) * channel_stride_ + sizeof(ChannelWords) +
           number % kFrames * frame_stride_;
  }
  MessageChannel& messages(int from, int to) const noexcept {
    return *reinterpret_cast<MessageChannel*>(base_ + messages_at_ + place(from, to) * message_stride_);
  }

  /// Returns the process id of a local rank.
  int process(int local) const noexcept { return block(local).process.load(std::memory_order_acquire); }
  /// Returns true if the communicator has failed.
  bool failed() const noexcept { return abort_block().state.load() != 0; }
  /// Returns true if the process or thread of a local rank still holds its lock. Makes one system call.
  bool alive(int local) const noexcept;
  /// Marks the local ranks that no longer hold their locks. Does nothing if a rank of this host began the latest search
  /// less than `every` before `now`, a time of the coarse clock. If `every` is 0, it always searches. Makes one system
  /// call per rank that is not marked yet.
  void search_ended(std::chrono::nanoseconds now, std::chrono::nanoseconds every) const noexcept;
  /// Returns the place of a local rank in the order in which the ranks of this host have found that ranks had ended,
  /// from 1. Returns 0 if no rank has found that this rank has ended.
  std::uint64_t ended(int local) const noexcept { return block(local).ended.value.load(std::memory_order_acquire); }

 private:
  struct Mapping;
  Arena(std::shared_ptr<Mapping>, const ArenaShape&, int self);
  /// Returns the place of a local rank in a table with a row per subgroup, or per local rank.
  std::size_t place(int row, int local) const noexcept {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(shape_.ranks) + static_cast<std::size_t>(local);
  }
  void hold_place();

  std::shared_ptr<Mapping> mapping_;
  std::byte* base_ = nullptr;
  ArenaShape shape_;
  int self_ = 0;
  OwnDescriptor place_;      // holds the lock
  std::uint64_t probe_ = 0;  // word that peers read to test whether the kernel lets them
  std::size_t abort_at_ = 0, searched_at_ = 0, blocks_at_ = 0, member_calls_at_ = 0, host_collective_blocks_at_ = 0,
              directories_at_ = 0, gpu_blocks_at_ = 0, details_at_ = 0, lines_at_ = 0, lines_bytes_ = 0,
              staging_at_ = 0, staging_bytes_ = 0, channels_at_ = 0, channel_stride_ = 0, frame_stride_ = 0,
              messages_at_ = 0, message_stride_ = 0, total_ = 0;
};

/// Marks the ended ranks in all arenas of this process, at once. A rank that throws because a peer has ended calls this
/// function. Other ranks may find both ended at one time. The marks then show which rank ended first.
void search_ended_in_all_arenas() noexcept;

}  // namespace collectives
