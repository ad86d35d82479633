// NcclComm and Nccl: the interface to NCCL, NVIDIA's library of collectives between GPUs. A communicator of NCCL puts
// collectives into streams. A stream is a queue of work for a GPU.
//
// The interface needs no header of NCCL or CUDA. Only stop(), the destructor and the functions for memory may block.
// The caller polls ready() and applies its own deadlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// NCCL communicator of this rank. One thread may use it at a time. All members must start the same collectives in the
/// same order. Their sends and receives must match. A failure throws Error{system} with NCCL's text. The failure stops
/// the communicator, and later calls throw Error{aborted}.
class NcclComm {
 public:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, receive };
  /// Call that NCCL puts into a stream. The buffers are in device memory.
  struct Call {
    Kind kind = Kind::all_reduce;
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;  ///< Number of elements. For reduce_scatter and all_gather: of one rank's part.
    DataType type = DataType::f32;
    ReduceOp op = {};
    Rank rank = 0;  ///< Root of the collective, or peer of the send or receive.
  };

  /// Gives up unfinished calls.
  virtual ~NcclComm() = default;

  /// Starts to put `calls` into `stream` (a cudaStream_t) as one group. The sends and receives of a group proceed
  /// together, so none blocks another. A collective with unequal parts is a group with a broadcast or reduction per
  /// part. Requires that ready() has returned true since the last start.
  virtual void start(std::span<const Call> calls, void* stream) = 0;
  /// Returns true if the last request is complete: the communicator is constructed, or the calls are in their stream.
  /// Also throws errors that have occurred in streams since the request.
  virtual bool ready() = 0;

  /// Starts to create an NCCL communicator of the members with the same `color`, in the order of `key`. A negative
  /// color creates an empty communicator. The new communicator's ready() reports completion. Until completion, this
  /// communicator must exist and must start nothing else.
  virtual std::unique_ptr<NcclComm> split(int color, int key) = 0;

  /// Starts to leave the communicator in an orderly manner: NCCL first completes its work in streams. Afterwards
  /// ready() reports when the communicator may be destroyed.
  virtual void leave() = 0;
  /// Gives up all work in progress, including NCCL's work in streams. Later work in the streams is still performed.
  /// Affects this rank only. Waits at most 200 ms; the rest happens in the background.
  virtual void stop() noexcept = 0;

  /// Registers memory. Collectives access registered memory without a copy, if the buffers of all members have the same
  /// offset in registered memory. Returns a handle for deregister_memory(), which must be called before the
  /// communicator is destroyed. Requires ready(). A refusal leaves the communicator unchanged.
  virtual void* register_memory(void* memory, std::size_t bytes) = 0;
  virtual void deregister_memory(void* handle) = 0;
};

/// NCCL as a loaded library.
class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual int major() const noexcept = 0;
  /// Returns a description, for example "NCCL 2.28.9 (libnccl.so.2)".
  virtual std::string description() const = 0;
  /// Creates an id. One rank calls it and sends the id to all ranks. Throws Error{system}.
  virtual std::string new_id() const = 0;
  /// Starts to construct a communicator on the device that is current to this thread. Throws Error{system}.
  virtual std::unique_ptr<NcclComm> join(int size, const std::string& id, Rank rank) const = 0;

  /// Returns true if memory can be registered and allocated. The functions below require it.
  virtual bool has_memory() const noexcept = 0;
  /// Allocates memory of the current device that is best suited for registration. Throws Error{system}.
  virtual void* allocate(std::size_t bytes) const = 0;
  virtual void free(void* memory) const noexcept = 0;
};

}  // namespace collectives
