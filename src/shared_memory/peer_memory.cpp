// Implementation of the access to buffers of peers, by pointers or by copies of the kernel. The reason of the first
// refused copy is kept for an error text. A later call throws an error if its peer still lives 300 ms after that
// refusal.
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

constexpr auto kLookEvery = 10ms;  // time between two checks whether a peer lives; a check is a system call
// Time after the first refused copy in which a peer may still end. After that time, a call throws an error if its peer
// lives.
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

/// Returns true if the peer has ended. The process id of an ended peer may later belong to another process. Checks
/// every kLookEvery suffice, because the system needs longer to reuse an id.
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
    // For this test, every rank publishes the address and the value of a word in its own memory.
    const RankBlock& block = arena.block(local);
    std::uint64_t seen = 0;
    const iovec here{&seen, sizeof seen};
    const iovec there{reinterpret_cast<void*>(block.probe_address.load(std::memory_order_acquire)), sizeof seen};
    if (::process_vm_readv(arena.process(local), &here, 1, &there, 1, 0) < 0)
      return fmt::format("process_vm_readv: {}", std::strerror(errno));
    if (seen != block.probe.load(std::memory_order_acquire))
      return "process_vm_readv: the process has another number here";
    // A call that writes nothing always succeeds, unless a filter forbids all calls of the function.
    if (::process_vm_writev(arena.process(local), nullptr, 0, nullptr, 0, 0) < 0)
      return fmt::format("process_vm_writev: {}", std::strerror(errno));
  }
  return {};
}

bool PeerMemory::kernel_permits(int process) noexcept {
  // No process has memory at address 0. The kernel checks the permission first and the address afterwards.
  char byte = 0;
  const iovec here{&byte, 1}, there{nullptr, 1};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0) == -1 && errno == EFAULT;
}

}  // namespace collectives
