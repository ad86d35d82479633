// GpuPeers: gives access to the GPU memory of the other ranks of this host. PeerMemory (peer_memory.hpp) gives access
// to CPU memory in a similar manner.
//
// Ranks of the same process use each other's addresses. A rank of another process opens an allocation by a handle, in
// these steps:
//
// 1. When a buffer is first used, its owner writes the handle of the allocation into the arena, the shared memory of
//    the host. Each rank has kMostAtOnce places for handles there.
// 2. The owner gives its peers the name of the buffer. A name holds the number of the place and the offset in the
//    allocation.
// 3. A peer that receives the name opens the allocation by the handle. It keeps the mapping for later calls.
//
// The driver numbers its allocations. A new allocation thus has another number than a freed allocation at the same
// address. The owner compares this number, and writes a new handle for a new allocation. Each write to a place
// increments the sequence number of the place. At each use of a name, a peer compares the sequence number with that of
// its mapping. It therefore never uses an old mapping for a new allocation.
//
// Before an owner writes a new handle, it overwrites the handles of freed allocations. If all places are in use, the
// owner replaces the handle that was unused for the longest time. Before a peer opens another allocation, it closes all
// mappings whose handles have been overwritten. The memory of a freed allocation may stay occupied until all peers have
// closed their mappings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/peer_memory.hpp"

namespace collectives {

class GpuPeers {
 public:
  /// Maximum number of allocations that a rank publishes at a time.
  static constexpr std::size_t kMostAtOnce = kGpuMemoryRecords;

  GpuPeers(Device& device, const Arena& arena);
  /// Closes all mappings. Requires that no work on them is in progress.
  ~GpuPeers();
  GpuPeers(const GpuPeers&) = delete;
  GpuPeers& operator=(const GpuPeers&) = delete;

  /// Returns the name by which all peers find `address`. Returns nothing if the address is no GPU memory, or if the
  /// driver cannot share its allocation. Allocations from a memory pool are an example. The name is valid until this
  /// function has been called for kMostAtOnce other allocations.
  std::optional<RemoteBuffer> show(const std::byte* address);
  /// Returns the name of memory that this library has allocated, or for which show() has succeeded. Throws
  /// Error{system} if the driver refuses to share any more memory.
  RemoteBuffer show_for_certain(const std::byte* address);
  /// Returns the address in this process of a peer's buffer, for copies and kernels. It is valid during the call for
  /// which the peer has shown the buffer.
  std::byte* pointer(int local, const RemoteBuffer& buffer);
  /// Makes the destructor leave the mappings open.
  void leak_mappings() noexcept { leaks_mappings_ = true; }

 private:
  // Number of offset bits in a name. The bits above hold the place + 1.
  static constexpr unsigned kOffsetBits = 48;

  struct Shown {
    std::byte* base = nullptr;
    std::uint64_t buffer_id = 0;  // 0: the place is empty.
    std::uint64_t used = 0;       // Value of uses_ at the last use.
  };
  struct Opened {
    std::uint64_t sequence = 0;
    std::byte* memory = nullptr;
  };
  bool same_process(int local) const noexcept { return arena_.process(local) == arena_.process(arena_.self()); }
  std::optional<std::size_t> place_of(const Device::Allocation& memory);
  void withdraw_freed();
  void write(std::size_t place, const Device::Handle& handle) noexcept;
  void close_withdrawn() noexcept;

  Device& device_;
  const Arena& arena_;
  bool processes_ = false;  // True: some peers are in other processes.
  std::array<Shown, kGpuMemoryRecords> shown_;
  std::uint64_t uses_ = 0;
  std::vector<Opened> opened_;  // Indexed by local rank and place.
  bool leaks_mappings_ = false;
};

}  // namespace collectives
