// Implementation of the access to buffers of peers. If this process has mapped a buffer, it uses pointers. Otherwise it
// asks the kernel to copy the bytes (process_vm_readv, process_vm_writev).
//
// The kernel refuses a copy if the process of the peer is ending. At the first refusal, this file therefore only stores
// the kernel's error. If a later call finds that its peer still runs 300 ms after the first refusal, it throws the
// stored error.
#include "shared_memory/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/coarse_clock.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

// minimum time between two checks whether a peer still runs, because each check makes a system call
constexpr auto kLookEvery = 10ms;
// Time after the first refused copy in which calls throw no error, because the peer may be about to end.
constexpr auto kPatience = 300ms;

}  // namespace

std::byte* PeerMemory::pointer(int local, const RemoteBuffer& buffer, std::size_t bytes) {
  if (threads_ || local == arena_.self())
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(buffer.address));
  return segments_.resolve(local, buffer.name, bytes);
}

bool PeerMemory::read(int local, std::byte* to, std::uint64_t from, std::size_t bytes) {
  return transfer(Direction::from_peer, local, to, from, bytes);
}

bool PeerMemory::write(int local, std::uint64_t to, const std::byte* from, std::size_t bytes) {
  return transfer(Direction::to_peer, local, const_cast<std::byte*>(from), to, bytes);
}

bool PeerMemory::transfer(Direction direction, int local, std::byte* here, std::uint64_t there, std::size_t bytes) {
  if (!refused_.empty()) return refuse(local, refused_);
  if (gone(local)) return false;
  if (!kernel_)
    return refuse(local, fmt::format("a buffer of local rank {} can neither be mapped nor be copied by the kernel "
                                     "(process_vm_readv is not permitted)",
                                     local));
  const int process = arena_.process(local);
  while (bytes > 0) {
    const iovec mine{here, bytes}, theirs{reinterpret_cast<void*>(there), bytes};
    const ssize_t moved = direction == Direction::from_peer ? ::process_vm_readv(process, &mine, 1, &theirs, 1, 0)
                                                            : ::process_vm_writev(process, &mine, 1, &theirs, 1, 0);
    if (moved < 0)
      return refuse(local, fmt::format("{} of {} bytes with local rank {} (process {}): {}",
                                       direction == Direction::from_peer ? "process_vm_readv" : "process_vm_writev",
                                       bytes, local, process, std::strerror(errno)));
    here += moved;
    there += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

/// Returns true if the process of the peer has ended. Checks at most once per kLookEvery. The system gives the process
/// id of an ended peer to a new process only after a longer time, so each check still finds the end.
bool PeerMemory::gone(int local) {
  auto& looked = looked_[static_cast<std::size_t>(local)];
  const auto now = coarse_now();
  if (now - looked < kLookEvery) return false;
  if (!arena_.alive(local)) return true;
  looked = now;
  return false;
}

bool PeerMemory::refuse(int local, std::string why) {
  const auto now = std::chrono::steady_clock::now();
  if (refused_.empty()) {
    refused_ = std::move(why);
    refused_at_ = now;
  }
  if (now - refused_at_ > kPatience && arena_.alive(local)) throw Error(Errc::system, "shared memory: " + refused_);
  return false;
}

std::string PeerMemory::kernel_refuses(const Arena& arena) {
  for (int local = 0; local < arena.ranks(); ++local) {
    if (local == arena.self()) continue;
    // Every rank has published the address and the value of one word of its memory. This rank copies that word from the
    // peer's memory, and compares the copy with the published value.
    const RankBlock& block = arena.block(local);
    std::uint64_t seen = 0;
    const iovec here{&seen, sizeof seen};
    const iovec there{reinterpret_cast<void*>(block.probe_address.load(std::memory_order_acquire)), sizeof seen};
    if (::process_vm_readv(arena.process(local), &here, 1, &there, 1, 0) < 0)
      return fmt::format("process_vm_readv: {}", std::strerror(errno));
    if (seen != block.probe.load(std::memory_order_acquire))
      return "process_vm_readv: the process has another number here";
    // This call writes no bytes. It fails only if the system forbids process_vm_writev altogether, for example by a
    // filter of system calls.
    if (::process_vm_writev(arena.process(local), nullptr, 0, nullptr, 0, 0) < 0)
      return fmt::format("process_vm_writev: {}", std::strerror(errno));
  }
  return {};
}

bool PeerMemory::kernel_permits(int process) noexcept {
  // No process has memory at address 0. The kernel checks the permission before the address, so the error tells whether
  // the permission is missing.
  char byte = 0;
  const iovec here{&byte, 1}, there{nullptr, 1};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0) == -1 && errno == EFAULT;
}

}  // namespace collectives
