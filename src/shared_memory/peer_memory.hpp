// Peer memory: access to buffers of the other ranks of this host.
//
// In a zero-copy or single-copy collective (zero_copy.hpp), each rank publishes the addresses of its buffers. A peer
// accesses a buffer in one of two ways:
//
//   pointer      the ranks are threads and share an address space, or the buffer comes from allocate() and lies in a
//                segment that every rank can map
//   kernel copy  process_vm_readv and process_vm_writev, if the system permits them
//
// The kernel refuses copies if the peer's process is ending. At the first refusal, PeerMemory throws no error, because
// the failure detector finds and reports lost peers. A later call throws if its peer is still alive 300 ms after the
// first refusal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shared_memory/arena.hpp"
#include "shared_memory/segment_directory.hpp"

namespace collectives {

/// Buffer of one rank, as its peers see it.
struct RemoteBuffer {
  std::uint64_t address = 0;  ///< address in the owner's process; 0: no buffer
  std::uint64_t name = 0;     ///< name in the owner's segment directory; 0: the buffer lies in no segment
};

class PeerMemory {
 public:
  /// `threads`: whether all ranks of the host are threads of this process. `kernel`: whether the kernel permits copies
  /// between the ranks.
  PeerMemory(const Arena& arena, bool threads, bool kernel, SegmentTable which = SegmentTable::collectives)
      : arena_(arena),
        threads_(threads),
        kernel_(kernel),
        segments_(arena, which),
        looked_(static_cast<std::size_t>(arena.ranks())) {}

  /// Returns what peers need to access `bytes` bytes at `data`.
  RemoteBuffer describe(const std::byte* data, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(data), threads_ ? 0 : segments_.name_of(data, bytes)};
  }
  /// Returns true if every rank can get a pointer to the buffer, or if there is no buffer.
  bool mapped(const RemoteBuffer& buffer) const noexcept { return threads_ || buffer.name != 0 || buffer.address == 0; }
  /// Returns a pointer to the buffer of a peer. Returns null if this process cannot map the buffer.
  std::byte* pointer(int local, const RemoteBuffer&, std::size_t bytes);

  /// Returns true if the kernel permits copies between the ranks.
  bool kernel_permits_copies() const noexcept { return kernel_; }
  /// Copies from the memory of a peer (read), or to it (write). Returns false if the system refuses the copy, because
  /// the peer may have ended. Every later call then returns false, too, whatever its peer. A later call throws
  /// Error{system} if its peer is alive 300 ms after the first refusal.
  bool read(int local, std::byte* to, std::uint64_t from, std::size_t bytes);
  bool write(int local, std::uint64_t to, const std::byte* from, std::size_t bytes);

  /// Returns the reason why the kernel does not copy between this process and its peers, or an empty string. Makes two
  /// system calls per rank.
  static std::string kernel_refuses(const Arena&);
  /// Returns true if the kernel would let this process copy from `process`. Needs no arena.
  static bool kernel_permits(int process) noexcept;

 private:
  enum class Direction { from_peer, to_peer };
  bool transfer(Direction, int local, std::byte* here, std::uint64_t there, std::size_t bytes);
  bool gone(int local);
  bool refuse(int local, std::string why);

  const Arena& arena_;
  bool threads_, kernel_;
  SegmentDirectory segments_;
  std::vector<std::chrono::nanoseconds> looked_;  // when each peer was last seen alive
  std::string refused_;                           // reason of the first refusal; empty: none
  std::chrono::steady_clock::time_point refused_at_{};
};

}  // namespace collectives
