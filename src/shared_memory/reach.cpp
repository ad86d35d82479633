#include "shared_memory/reach.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "collectives/error.hpp"

namespace collectives {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

bool transfer(Transfer call, const char* name, int process, const std::byte* here, std::uint64_t there,
              std::size_t bytes) {
  while (bytes > 0) {
    const iovec local{const_cast<std::byte*>(here), bytes}, remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t moved = call(process, &local, 1, &remote, 1, 0);
    if (moved < 0) {
      if (errno == ESRCH) return false;
      throw Error(Errc::system, fmt::format("shared memory: {} of {} bytes with process {}: {}", name, bytes, process,
                                            std::strerror(errno)));
    }
    here += moved;
    there += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

std::byte* Reach::pointer(int local, const RemoteBuffer& buffer, std::size_t bytes) {
  if (threads_ || local == arena_.self())
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(buffer.address));
  return segments_.reach(local, buffer.name, bytes);
}

void Reach::need_kernel(int local) const {
  if (!kernel_)
    throw Error(
        Errc::system,
        fmt::format("shared memory: a buffer of local rank {} can neither be mapped nor be copied by the kernel "
                    "(process_vm_readv is not permitted)",
                    local));
}

bool Reach::read(int local, std::byte* to, std::uint64_t from, std::size_t bytes) const {
  need_kernel(local);
  return transfer(::process_vm_readv, "process_vm_readv", arena_.process(local), to, from, bytes);
}

bool Reach::write(int local, std::uint64_t to, const std::byte* from, std::size_t bytes) const {
  need_kernel(local);
  return transfer(::process_vm_writev, "process_vm_writev", arena_.process(local), from, to, bytes);
}

bool Reach::kernel_allows(const Arena& arena) {
  for (int local = 0; local < arena.ranks(); ++local) {
    if (local == arena.self()) continue;
    // Every rank keeps a word in its own memory for this, and says in the arena where it is and what it holds.
    const RankBlock& block = arena.block(local);
    std::uint64_t seen = 0;
    const iovec here{&seen, sizeof seen};
    const iovec there{reinterpret_cast<void*>(block.probe_address.load(std::memory_order_acquire)), sizeof seen};
    if (::process_vm_readv(arena.process(local), &here, 1, &there, 1, 0) != static_cast<ssize_t>(sizeof seen) ||
        seen != block.probe.load(std::memory_order_acquire))
      return false;
  }
  return true;
}

bool Reach::kernel_permits(int process) noexcept {
  // Nobody has anything at address 0; that is found out after permission has been asked.
  char byte = 0;
  const iovec here{&byte, 1}, there{nullptr, 1};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0) == -1 && errno == EFAULT;
}

}  // namespace collectives
