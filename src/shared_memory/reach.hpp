// Reaching into the buffers of the other ranks of this host.
//
// A rank publishes where its buffers of a host stage are. Another reaches them by a pointer where it can: ranks that
// are threads share an address space, and memory from allocate() lies in segments that every rank can map. Elsewhere
// the kernel copies between the processes (process_vm_readv and process_vm_writev), if the system allows that.
#pragma once

#include <cstddef>
#include <cstdint>
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
      : arena_(arena), threads_(threads), kernel_(kernel), segments_(arena) {}

  RemoteBuffer describe(const std::byte* data, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(data), threads_ ? 0 : segments_.name_of(data, bytes)};
  }
  /// Whether everyone can have a pointer to it.
  bool mapped(const RemoteBuffer& buffer) const noexcept { return threads_ || buffer.name != 0 || buffer.address == 0; }
  /// A pointer to a peer's buffer, or null where only the kernel reaches it.
  std::byte* pointer(int local, const RemoteBuffer&, std::size_t bytes);

  /// Copies from or to the memory of a peer. False when the peer's process is gone. Throws Error{system}.
  bool read(int local, std::byte* to, std::uint64_t from, std::size_t bytes) const;
  bool write(int local, std::uint64_t to, const std::byte* from, std::size_t bytes) const;

  /// Whether the kernel lets this process into every other rank's memory. One system call per rank.
  static bool kernel_allows(const Arena&);
  /// The same of one process before there is an arena: whether it would be permitted.
  static bool kernel_permits(int process) noexcept;

 private:
  void need_kernel(int local) const;

  const Arena& arena_;
  bool threads_, kernel_;
  Segments segments_;
};

}  // namespace collectives
