// Reaching into the buffers of the other ranks of this host.
//
// A rank publishes where its buffers of a host stage are. Another reaches them by a pointer where it can: ranks that
// are threads share an address space, and memory from allocate() lies in segments that every rank can map. Elsewhere
// the kernel copies between the processes (process_vm_readv and process_vm_writev), if the system allows that.
//
// What cannot be reached may be the memory of a process that is just ending, which the watch will find out and name. So
// a refusal is an error only when its owner is still alive a while later.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shared_memory/arena.hpp"
#include "shared_memory/segments.hpp"

namespace collectives {

/// A stretch of a rank's memory as its owner sees it, and by the name under which others may map it.
struct RemoteBuffer {
  std::uint64_t address = 0;  ///< in the owner's process; 0: there is none
  std::uint64_t name = 0;     ///< of the place in a shared segment; 0: in none
};

class Reach {
 public:
  /// `threads`: all ranks of the host are threads of this process. `kernel`: the kernel may copy between the ranks.
  Reach(const Arena& arena, bool threads, bool kernel)
      : arena_(arena),
        threads_(threads),
        kernel_(kernel),
        segments_(arena),
        looked_(static_cast<std::size_t>(arena.ranks())) {}

  RemoteBuffer describe(const std::byte* data, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(data), threads_ ? 0 : segments_.name_of(data, bytes)};
  }
  /// Whether everyone can have a pointer to it.
  bool mapped(const RemoteBuffer& buffer) const noexcept { return threads_ || buffer.name != 0 || buffer.address == 0; }
  /// A pointer to a peer's buffer, or null where only the kernel reaches it.
  std::byte* pointer(int local, const RemoteBuffer&, std::size_t bytes);

  /// Copies from or to the memory of a peer. False, then and at every later call, when that was refused: the peer may
  /// be gone. Throws Error{system} when it is not.
  bool read(int local, std::byte* to, std::uint64_t from, std::size_t bytes);
  bool write(int local, std::uint64_t to, const std::byte* from, std::size_t bytes);

  /// What keeps this process out of another rank's memory; empty when nothing does. Two system calls per rank.
  static std::string kernel_refuses(const Arena&);
  /// Before there is an arena: whether it would let this process into another's.
  static bool kernel_permits(int process) noexcept;

 private:
  enum class Way { from_peer, to_peer };
  bool transfer(Way, int local, std::byte* here, std::uint64_t there, std::size_t bytes);
  bool gone(int local);
  bool refuse(int local, std::string why);

  const Arena& arena_;
  bool threads_, kernel_;
  Segments segments_;
  std::vector<std::chrono::nanoseconds> looked_;  // when each peer was last seen alive
  std::string refused_;                           // why; empty while nothing was
  std::chrono::steady_clock::time_point refused_at_{};
};

}  // namespace collectives
