// NCCL as the rest of the library knows it: GPUs in an NCCL communicator, which put collectives into streams. No header
// of NCCL or CUDA is needed to ask for it, and nothing here waits: whoever asks looks again until it is ready, under
// deadlines of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// A rank's place in an NCCL communicator. Used by one thread at a time, and begun by all members in the same order.
/// What goes wrong is Error{system} with NCCL's words; then the NCCL communicator has been given up, and calls throw
/// Error{aborted}.
class NcclComm {
 public:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, receive };
  /// One thing that is put into a stream. Buffers are the device's.
  struct Call {
    Kind kind = Kind::all_reduce;
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;  ///< elements; of one rank's part for reduce_scatter and all_gather
    DataType type = DataType::f32;
    ReduceOp op = {};
    Rank rank = 0;  ///< the root, or the peer
  };

  /// What is unfinished is given up.
  virtual ~NcclComm() = default;

  /// Begins to put `calls` into `stream` (a cudaStream_t), where they happen together: sends meet receives, v-variants
  /// are broadcasts or reductions of each part. All that was begun before is ready.
  virtual void start(std::span<const Call> calls, void* stream) = 0;
  /// Whether what was begun has come to its end: an NCCL communicator has met, calls are in their stream. Also tells of
  /// what has gone wrong in streams since.
  virtual bool ready() = 0;

  /// Begins to make an NCCL communicator of those who say the same color, ordered by `key`; with a negative one of
  /// nobody. The part says when it is ready; until then this NCCL communicator stays, and does nothing else.
  virtual std::unique_ptr<NcclComm> split(int color, int key) = 0;

  /// Begins to leave in order, when all that is in streams has happened; ready() says when the NCCL communicator may
  /// go.
  virtual void leave() = 0;
  /// Gives up what is under way, in streams too, which then go on; `this` rank's part only. Does not wait for long:
  /// what cannot be given up at once is given up in the background.
  virtual void stop() noexcept = 0;

  /// Memory that collectives reach without copying, if all members do so, each at the same offset; a handle for
  /// deregister_memory(), needed before the NCCL communicator goes. All that was begun before is ready. What is refused
  /// leaves the NCCL communicator as it is.
  virtual void* register_memory(void* memory, std::size_t bytes) = 0;
  virtual void deregister_memory(void* handle) = 0;
};

/// The library itself.
class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual int major() const noexcept = 0;
  /// "NCCL 2.28.9 (libnccl.so.2)"
  virtual std::string description() const = 0;
  /// What one rank makes and all are told. Throws Error{system}.
  virtual std::string new_id() const = 0;
  /// Begins to meet the others, on the device that is this thread's current one. Throws Error{system}.
  virtual std::unique_ptr<NcclComm> join(int size, const std::string& id, Rank rank) const = 0;

  /// Whether memory can be registered and taken here; the rest is for those where it can.
  virtual bool has_memory() const noexcept = 0;
  /// Memory of the current device that is best to register. Throws Error{system}.
  virtual void* allocate(std::size_t bytes) const = 0;
  virtual void free(void* memory) const noexcept = 0;
};

}  // namespace collectives
