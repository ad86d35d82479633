// BufferExchange: publishes the GPU buffers of a call or Step to the ranks of the host, and synchronizes the ranks.
//
// Both happen on the processors, in the arena, the shared memory of the host. No GPU polls another GPU, so a late or
// lost rank is detected as in any other call. Ranks synchronize twice:
//
// 1. All ranks have published their buffers, and all work that had to precede the call is done.
// 2. All ranks have reported that their kernels are done.
//
// A kernel cannot be cancelled. While it runs, this rank's `remote_access` flag in the arena is set. A rank that gives
// up a call waits until its peers have cleared this flag (FailureDetector::wait_for_remote_access_end).
//
// Price: two synchronizations and the polling of an event. That takes some microseconds more than GPUs that poll one
// another.
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
  /// Buffers of a rank, as addresses of element 0 of the vector. Null: the rank has no such buffer.
  struct Buffers {
    std::byte *source = nullptr, *destination = nullptr;
  };

  /// The exchanges of a communicator share `peers`. `sync` is the block in which the ranks synchronize.
  BufferExchange(const Arena& arena, std::shared_ptr<GpuPeers> peers, GpuSync GpuBlock::*sync)
      : arena_(arena), peers_(std::move(peers)), sync_(sync), buffers_(static_cast<std::size_t>(arena.ranks())) {}

  /// Begins an operation, whose number and signature are `tag`.
  void begin(std::uint64_t tag) noexcept { tag_ = tag; }
  /// Sets this rank's buffers for `task`, as addresses of element 0. Null: none. Returns false if the peers cannot
  /// access a buffer, or if its elements are misaligned for a kernel.
  bool set_own(const HostTask& task, const std::byte* source, const std::byte* destination);
  /// Sets buffers in memory that the library has allocated, or that was shown before. Throws Error{system} if the
  /// driver refuses to share any more memory.
  void set_own_shared(const HostTask& task, const std::byte* source, const std::byte* destination);
  /// Clears this rank's buffers, because no other rank accesses them.
  void clear_own() noexcept { source_ = destination_ = {}; }
  /// Publishes this rank's buffers. `objects`: this rank asks all ranks to perform the call on another path.
  void publish(bool objects = false);
  /// Returns true if all ranks have published. Then fills buffers(). Throws TagMismatch.
  bool all_published(const HostTask& task);
  /// Returns true if any rank objects. Requires that all_published() has returned true.
  bool any_objection() const noexcept;
  /// Returns the buffers of all ranks, indexed by local rank.
  const std::vector<Buffers>& buffers() const noexcept { return buffers_; }

  /// Set and clear the `remote_access` flag around accesses to peers' buffers. begin_remote_access() returns false and
  /// clears the flag if the call has failed.
  bool begin_remote_access() noexcept;
  void end_remote_access() noexcept;

  /// Publishes that the work of this rank's GPU is done.
  void publish_done() noexcept;
  /// Returns true if the work of all ranks' GPUs is done.
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
  int peer_ = 0;                       // Next rank to poll.
};

}  // namespace collectives
