// BufferExchange: lets the GPUs of a host access the buffers of all its ranks during a call. Each rank publishes where
// its GPU buffers are. The ranks synchronize, so that no GPU accesses a buffer too early or too late.
//
// The CPUs of the ranks publish and synchronize in the arena, the shared memory of the host. No GPU polls another GPU.
// Late and lost ranks are therefore detected as in calls on CPU memory. The ranks synchronize twice in a call:
//
// 1. A rank starts its kernel after all ranks have published their buffers. The kernel accesses all these buffers. A
//    rank publishes its buffers once the earlier work in the caller's stream is done.
// 2. A rank ends the call after all ranks have reported that their kernels are done.
//
// A kernel cannot be cancelled. While the kernel of a rank runs, the rank's flag `remote_access` in the arena is set.
// After a failure, a rank waits until its peers have cleared their flags (FailureDetector::wait_for_remote_access_end).
// This wait takes at most half a second for each peer. The rank then throws the error, after which the program may free
// its buffers.
//
// Price: synchronization by CPUs takes some microseconds longer than synchronization by GPUs that poll one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/gpu_peers.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/host_task.hpp"

namespace collectives {

class BufferExchange {
 public:
  /// Addresses of a rank's buffers. If a buffer holds only a part of the vector, the address is that of element 0 of
  /// the whole vector. Null: the rank has no such buffer.
  struct Buffers {
    std::byte *source = nullptr, *destination = nullptr;
  };

  /// The exchanges of a communicator share `peers`. `sync`: the block of the arena in which the ranks synchronize.
  BufferExchange(const Arena& arena, std::shared_ptr<GpuPeers> peers, GpuSync GpuBlock::*sync)
      : arena_(arena), peers_(std::move(peers)), sync_(sync), buffers_(static_cast<std::size_t>(arena.ranks())) {}

  /// Begins an operation. `tag`: the number of the operation and a hash of its arguments, which the ranks compare.
  void begin(std::uint64_t tag) noexcept { tag_ = tag; }
  /// Sets this rank's buffers for `task`, with addresses as in Buffers. Returns false if the peers cannot access a
  /// buffer, or if its elements are misaligned for a kernel.
  bool set_own(const HostTask& task, const std::byte* source, const std::byte* destination);
  /// Sets this rank's buffers. Requires memory that the library has allocated, or for which GpuPeers::show() has
  /// succeeded. Throws Error{system} if the driver refuses to share any more memory.
  void set_own_shared(const HostTask& task, const std::byte* source, const std::byte* destination);
  /// Clears this rank's buffers, for a call in which no other rank accesses them.
  void clear_own() noexcept { source_ = destination_ = {}; }
  /// Publishes this rank's buffers. If `objects` is true, this rank cannot perform the call on this device path. All
  /// ranks must then use another path.
  void publish(bool objects = false);
  /// Returns true if all ranks have published their buffers, and then fills buffers(). Throws TagMismatch if a rank is
  /// in another call.
  bool all_published(const HostTask& task);
  /// Returns true if any rank objects. Requires that all_published() has returned true.
  bool any_objection() const noexcept;
  /// Returns the buffers of all ranks, indexed by local rank.
  const std::vector<Buffers>& buffers() const noexcept { return buffers_; }

  /// Set and clear this rank's flag `remote_access` around accesses to peers' buffers. If a rank of the host has
  /// reported a failure, begin_remote_access() returns false. The flag is then not set.
  bool begin_remote_access() noexcept;
  void end_remote_access() noexcept;

  /// Publishes that the work of this rank's GPU is done.
  void publish_done() noexcept;
  /// Returns true if the GPUs of all ranks are done.
  bool all_done();

  GpuPeers& peers() noexcept { return *peers_; }

 private:
  std::optional<RemoteBuffer> show(const HostTask& task, const std::byte* from_element_0, bool destination);
  RemoteBuffer show_shared(const HostTask& task, const std::byte* from_element_0, bool destination);
  void find_buffers(const HostTask& task);
  GpuSync& sync_block(int local) const noexcept { return arena_.gpu_block(local).*sync_; }

  const Arena& arena_;
  const std::shared_ptr<GpuPeers> peers_;
  GpuSync GpuBlock::*const sync_;
  std::vector<Buffers> buffers_;
  std::uint64_t tag_ = 0;
  RemoteBuffer source_, destination_;  // Buffers of this rank.
  int peer_ = 0;                       // Local rank of the peer to poll next.
};

}  // namespace collectives
