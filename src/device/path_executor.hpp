// PathExecutor: the base class of the device paths. A device path is a way to perform calls on GPU memory.
//
// A communicator has at most one object of each path. The plan of a call names the path that performs it (DevicePath,
// in plan.hpp). File planning/device_path_choice.cpp chooses the path, from values that are equal on all ranks. Some
// paths let the CPU perform a part of an operation, in CPU memory. The function progress() of these paths returns
// PathState::host when the CPU must act.
//
// The communicator does the work that all paths share:
//
// - It publishes the arrival record of the oldest queued operation: the number and arguments of the call, which peers
//   read if they wait. It then starts the operation on its path.
// - While a thread waits for the operation, the communicator looks for peers in another call, for lost peers, and for a
//   passed deadline.
//
// The function progress() advances an operation as far as possible, and never waits for a peer. It polls events to find
// out whether work of the GPU is done. It waits for the GPU only to allocate or free memory, or to move a residual of
// top-k.
//
// A stream is a queue of work for a GPU. When all work of an operation is in streams, the next operation can begin. The
// GPU may still be performing the work of the earlier operation. A progress thread, if there is one, watches the
// earlier operation until it ends. At most 32 calls can begin after an operation before this operation has ended. Ranks
// compare the arguments of a call while they wait, and when results are complete. Price: if a peer is in another call,
// a rank may report it only in a later call.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "core/call.hpp"
#include "device/device.hpp"

namespace collectives {

struct PlannedCall;
struct Job;
class Executor;
class SparseTensor;

/// Operation on GPU memory, from its call to its end. Later operations reuse the object.
struct DeviceCall {
  /// Arguments of the call, without the counts and tensors, which lie in the caller's stack frame.
  Call call;
  std::vector<Tensor> tensors;  ///< Copy of Call::tensors.
  /// Index in the vector of the first element of this rank's part; 0 if the rank has no part.
  std::size_t mine = 0;
  std::optional<Device::Stream> stream;
  /// Event that is reached once the work that `stream` held at the call is done. Used only with a stream.
  Device::Event ready = nullptr;
  /// True: a blocking call. If it has a stream, it may return before the result is complete, because the stream waits
  /// for the result.
  bool ends_in_stream = false;
  SparseTensor* tensor = nullptr;  ///< Tensor of a call with a compressor.
  /// Error that the GPU reported before the operation started. The operation then fails at its start, with this error.
  std::exception_ptr refused;
  bool started = false;    ///< True: the path has started the operation.
  bool in_host = false;    ///< True: the CPU is performing its part of the operation.
  bool with_gpu = false;   ///< True: this rank waits for its GPU.
  bool in_flight = false;  ///< True: the whole operation is in streams.
};

class PathExecutor {
 public:
  enum class PathState : std::uint8_t {
    gpu,    ///< Waits for this rank's GPU. Call progress() again.
    peers,  ///< Waits for other ranks. Call progress() again.
    host,   ///< Asks the caller to let the CPU perform the job. Then call progress() again.
    /// Whole operation is in streams, so the next operation may begin. retire_oldest() reports its end.
    in_flight,
    done
  };

  virtual ~PathExecutor() = default;
  /// Returns true if the operation would allocate memory. If so, it starts only while no operation is in flight,
  /// because allocation may wait for the GPU.
  virtual bool takes_memory(const DeviceCall&, const PlannedCall&) noexcept { return true; }
  /// Starts an operation. Requires that `call` and `planned` stay valid until it is done or abandoned. The `job`
  /// describes the operation, with GPU addresses and its tag. Before the path returns PathState::host, it replaces the
  /// addresses by those of CPU memory.
  virtual void start(const DeviceCall& call, const PlannedCall& planned, Job& job) = 0;
  /// Advances the operation. Throws errors of the GPU, TagMismatch for a peer in another call, and Error for a lost
  /// peer.
  virtual PathState progress() = 0;
  /// Returns true if the oldest operation in flight has ended. The next one then becomes the oldest. Throws as
  /// progress() does.
  virtual bool retire_oldest() { return true; }
  /// Gives up the operation after a failure on any rank. Work that the GPU already has is still performed. Called
  /// before this rank waits until its peers no longer access its buffers. Reason: this rank must first stop accessing
  /// theirs.
  virtual void abandon() noexcept = 0;
  /// Returns the executor that performs Steps for this path. Null: none.
  virtual Executor* executor() noexcept { return nullptr; }
  /// Returns a counter that changes with every progress.
  virtual std::uint64_t moves() const noexcept = 0;
};

}  // namespace collectives
