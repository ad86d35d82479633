// Base class of the device paths that access the memory of other GPUs of the host.
//
// The class publishes the buffers of a call and synchronizes the ranks. Both happen on the processors, in the arena,
// the shared memory of the host. No GPU polls another GPU, so a late or lost rank is detected as in any other call. A
// call synchronizes twice:
//
// 1. All ranks have published their buffers, and all work that had to precede the call is done.
// 2. All ranks have reported that their kernels are done.
//
// Some buffers cannot be accessed by other ranks: the tensors of a group, managed memory, memory that cannot be shared,
// and misaligned elements. Each rank decides for itself. It packs its buffers into memory of this path and copies the
// result back. This memory is as long as the longest vector that needed it, rounded up to a power of two. Outgrown
// memory is kept until the end, because to free it may wait for all work of the GPU.
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
#include "device/path_executor.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/host_task.hpp"

namespace collectives {

class IntraHostPath : public PathExecutor {
 public:
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 protected:
  /// `rank` is the number of this rank in the communicator. The paths of a communicator share `peers`. `sync` is the
  /// block in which the ranks synchronize.
  IntraHostPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, Rank rank,
                GpuSync GpuBlock::*sync = &GpuBlock::call)
      : device_(device), arena_(arena), rank_(rank), peers_(std::move(peers)), sync_(sync) {}
  /// Waits up to 10 s for the stream, or 200 ms after a failure. If the stream does not finish, the memory is leaked.
  ~IntraHostPath() override;

  /// Buffers of a rank, as addresses of element 0 of the vector. Null: the rank has no such buffer.
  struct Buffers {
    std::byte *source = nullptr, *destination = nullptr;
  };

  /// Begins a call whose task is `task_`. `input` and `output` are device addresses.
  void begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag);
  /// Waits for the stream. Returns false if the stream does not finish in time.
  bool drained() noexcept;
  /// Prepares to publish this rank's buffers. If the peers cannot access them, starts to copy them to memory that the
  /// peers can access.
  void prepare_shared();
  /// Prepares buffers that no other rank accesses. Packs them if the call has several tensors, or if a buffer is
  /// misaligned.
  void prepare_local();
  /// Prepares buffers of which a peer may access any part later in the call.
  void prepare_for_steps();
  /// Sets the vectors of `task_`, which is a Step of the call. Both are addresses of element 0.
  void bind_step_buffers(const std::byte* source, std::byte* destination, std::uint64_t tag);
  /// Return this rank's vector, as an address of element 0. Require that it has been prepared.
  const std::byte* own_input() const noexcept { return packed_ ? vector() : input_; }
  std::byte* own_output() const noexcept { return packed_ ? vector() : output_; }
  /// Returns true if the packed copy is complete, or if there is none.
  bool prepared() { return !packed_ || device_.reached(done_); }
  /// Publishes this rank's buffers. `objects`: this rank asks all ranks to perform the call on another path.
  void publish(bool objects = false);
  /// Returns true if all ranks have published. Then fills `buffers_`. Throws TagMismatch.
  bool all_published();
  /// Returns true if any rank objects. Requires that all_published() has returned true.
  bool any_objection() const noexcept;
  /// Puts this rank's share of `task_` into the stream. Reads every source once, combines in rank order, and writes
  /// every destination. The sources are contributions if `unreduced`. `finish_ranks` is the argument of fold().
  void do_share(const ReduceOp& op, DataType type, bool unreduced, int finish_ranks);
  /// Publishes that the work of this rank's GPU is done, or tests whether that of all ranks is.
  void publish_done() noexcept;
  bool all_done();
  /// Performs the rest of the call: waits until all ranks are done, and returns the result to the caller's buffer.
  PathState leave();
  /// Copies a packed result to the caller's buffer and ends the call.
  PathState return_result();
  /// Set and clear the `remote_access` flag around accesses to peers' buffers. begin_remote_access() returns false and
  /// clears the flag if the call has failed.
  bool begin_remote_access() noexcept;
  void end_remote_access() noexcept;
  /// Copies `bytes` at `from` to each destination in `to`, except to `from` itself.
  void copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);
  GpuPeers& peers() noexcept { return *peers_; }
  GpuSync& sync_block(int local) const noexcept { return arena_.gpu_block(local).*sync_; }

  Device& device_;
  const Arena& arena_;
  const Rank rank_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
  const DeviceCall* call_ = nullptr;
  HostTask task_;
  std::vector<Buffers> buffers_;  // Indexed by local rank.
  std::uint64_t moves_ = 0;
  // Arguments of the next kernel.
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;

 private:
  bool show_buffers();
  std::optional<RemoteBuffer> show(const std::byte* from_element_0, bool destination);
  void pack_vectors();
  std::byte* vector() const noexcept { return static_cast<std::byte*>(memory_.back()); }
  void find_buffers();
  RemoteBuffer shown(const std::byte* from_element_0, bool destination);

  std::shared_ptr<GpuPeers> peers_;
  GpuSync GpuBlock::*const sync_;
  std::vector<void*> memory_;  // Memory for packed vectors. The last one is in use.
  std::size_t bytes_ = 0;      // Size of the memory in use.
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::uint64_t tag_ = 0;
  bool packed_ = false, left_ = false, unpacking_ = false;
  RemoteBuffer own_, keep_;
  int peer_ = 0;
};

}  // namespace collectives
