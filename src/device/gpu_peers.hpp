// Reaching the memory of the other ranks' GPUs on this host: what peer_memory.hpp is to the host's own.
//
// Ranks of one process use one another's addresses. Another process opens an allocation by a handle, which its owner
// shows in the arena when a buffer in it is first used, in one of a few places; the buffer's name is that place and an
// offset. What has been opened stays so. The driver numbers allocations, so one that comes to the address of another
// is told from it and gets a place of its own; and a place that changes hands has another sequence number, so that no
// mapping of the old one is ever taken for the new one.
//
// Whoever opens something new closes first what has been withdrawn. An owner withdraws what has been freed when it
// shows something new, and what was used longest ago when the places run out. So the memory of a freed allocation may
// be in use until then.
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
  static constexpr std::size_t kMostAtOnce = kGpuMemoryRecords;

  GpuPeers(Device& device, const Arena& arena);
  /// Closes what it has opened; nothing that works on it may be under way. See Device::close.
  ~GpuPeers();
  GpuPeers(const GpuPeers&) = delete;
  GpuPeers& operator=(const GpuPeers&) = delete;

  /// How all peers find what lies at `address`; empty when some cannot: it is not a GPU's, or of an allocation that
  /// cannot be shared, as those of pools. Good until the next call has shown what it shows, of kMostAtOnce allocations.
  std::optional<RemoteBuffer> show(const std::byte* address);
  /// Likewise, of memory that this library has taken, or that has been shown before: unless the driver shares nothing
  /// any more, peers can find it. Else throws Error{system}.
  RemoteBuffer show_for_certain(const std::byte* address);
  /// A peer's buffer here, for copies and kernels. While the call lasts for which it was shown.
  std::byte* pointer(int local, const RemoteBuffer& buffer);
  /// The destructor closes nothing.
  void leak_mappings() noexcept { leaks_mappings_ = true; }

 private:
  static constexpr unsigned kOffsetBits = 48;  // of a name; above them place + 1

  struct Shown {
    std::byte* base = nullptr;
    std::uint64_t buffer_id = 0;  // 0: nothing
    std::uint64_t used = 0;       // when, counted in uses
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
  bool processes_ = false;  // there are peers in others
  std::array<Shown, kGpuMemoryRecords> shown_;
  std::uint64_t uses_ = 0;
  std::vector<Opened> opened_;  // by rank and place
  bool leaks_mappings_ = false;
};

}  // namespace collectives
