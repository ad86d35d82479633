// IntraHostCall: the common part of the device paths in which the GPUs of a host access each other's memory. Device
// paths are ways to perform calls on GPU memory. Each of these paths has one IntraHostCall.
//
// The object owns a stream, a queue of GPU work. It prepares the buffers of a call, and returns the result to the
// caller's buffers. BufferExchange (buffer_exchange.hpp) publishes the buffers and synchronizes the ranks.
//
// Kernels of other ranks cannot work on managed memory, on memory that the driver cannot share, or on misaligned
// elements. They also need one contiguous vector, not several tensors. If the buffers of a rank are unsuitable for one
// of these reasons, the rank packs its vector. To pack is to copy the vector to memory of this object, and later to
// copy the result back. A rank with suitable buffers does not pack. The memory is as long as the longest packed vector,
// rounded up to a power of two, and at least 64 KiB long. If a later vector is longer, the object allocates more
// memory, but frees the old memory only in its destructor. Reason: CUDA may wait for all work of the GPU when it frees
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/buffer_exchange.hpp"
#include "device/path_executor.hpp"
#include "device/tracked_stream.hpp"

namespace collectives {

class IntraHostCall {
 public:
  using PathState = PathExecutor::PathState;

  /// `rank`: number of this rank in the communicator. The paths of a communicator share `peers`. `sync`: block of the
  /// arena (the shared memory of the host) in which the ranks synchronize.
  IntraHostCall(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, Rank rank,
                GpuSync GpuBlock::*sync = &GpuBlock::call)
      : device_(device), rank_(rank), exchange_(arena, std::move(peers), sync), stream_(device) {}
  /// Waits at most 10 s for the stream, or 200 ms after a failure. If the stream does not finish, leaks the memory.
  ~IntraHostCall();
  IntraHostCall(const IntraHostCall&) = delete;
  IntraHostCall& operator=(const IntraHostCall&) = delete;

  /// Begins a call. `input` and `output`: addresses of element 0 of the vector in GPU memory.
  void begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag);
  /// Gives up the call after a failure. Waits up to 200 ms for the stream.
  void abandon() noexcept;
  /// Waits at most 10 s for the stream, or 200 ms during a call. Returns false if the stream takes longer.
  bool drained() noexcept;

  /// Returns true if the work that preceded the call in the caller's stream is done.
  bool input_ready() { return !call_->stream || device_.reached(call_->ready); }
  /// Prepares to publish this rank's buffers for `task`. If the peers cannot access them, starts to copy them to memory
  /// that the peers can access.
  void prepare_shared(const HostTask& task);
  /// Prepares buffers that no other rank accesses. Packs them if the call has several tensors, or if a buffer is
  /// misaligned.
  void prepare_local(const HostTask& task);
  /// Prepares buffers for a call in Steps (single actions of a rank). A peer may then access any element of the
  /// buffers.
  void prepare_for_steps(const HostTask& task);
  /// Returns true if the packed copy is complete, or if there is none.
  bool prepared() { return !packed_ || stream_.reached(); }
  /// Return this rank's vector, as an address of element 0. Require that it has been prepared.
  const std::byte* own_input() const noexcept { return packed_ ? vector() : input_; }
  std::byte* own_output() const noexcept { return packed_ ? vector() : output_; }

  /// Advances the end of the call: once all ranks are done, copies a packed result to the caller's buffer.
  PathState leave();
  /// Copies a packed result to the caller's buffer and ends the call.
  PathState return_result();

  /// Returns the call in progress. Null: none.
  const DeviceCall* call() const noexcept { return call_; }
  BufferExchange& exchange() noexcept { return exchange_; }
  /// Returns the stream of the path, which begin() opens.
  TrackedStream& stream() noexcept { return stream_; }
  /// Returns a counter that changes with every progress.
  std::uint64_t moves() const noexcept { return moves_; }

 private:
  void pack_vectors(const HostTask& task);
  std::byte* vector() const noexcept { return static_cast<std::byte*>(memory_.back()); }

  Device& device_;
  const Rank rank_;
  BufferExchange exchange_;
  TrackedStream stream_;
  const DeviceCall* call_ = nullptr;
  std::vector<void*> memory_;  // Memory for packed vectors. The last one is in use.
  std::size_t bytes_ = 0;      // Size of the memory in use.
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  bool packed_ = false, left_ = false, unpacking_ = false;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
