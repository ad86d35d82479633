// DeviceCalls: the communicator's work with its GPU, call by call.
//
// place() determines whether buffers are in host or device memory. An operation on device memory is prepared, started,
// progressed and released here. Its device path (device/path_executor.hpp) does the work. When a communicator is split
// or ends, the object splits or leaves its NCCL communicators.
//
// The object owns nothing: operations own their DeviceCall, and CommunicatorResources owns the paths. OperationQueue
// progresses operations, and Communicator::Impl calls everything else. Lock: the caller holds ProgressThread::guard().
// Exception: place() needs none.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation.hpp"
#include "core/call.hpp"

namespace collectives {

class DeviceCalls {
 public:
  explicit DeviceCalls(const CommunicatorResources& resources) noexcept : resources_(resources) {}

  /// Determines whether the buffers are in host or device memory, and sets `call.memory`. Throws if the buffers are
  /// invalid. Returns the GPU's error if it could not be asked. The operation must then fail with that error on all
  /// ranks.
  std::exception_ptr place(Call& call, const Options& options) const;

  /// Turns `operation` into one on device memory. `blocking`: the caller waits for its return. `refused`: the error
  /// that place() returned for the tensors of this call.
  void prepare(Operation& operation, const Call& call, const Options& options, bool blocking,
               std::exception_ptr refused) const;
  /// Returns whether the operation would allocate memory when it starts.
  bool takes_memory(const Operation& operation) const noexcept {
    return resources_.path_of(operation).takes_memory(*operation.device, *operation.call);
  }
  /// Starts an operation on its path. Requires that its arrival record has been published.
  void start(Operation& operation) const;
  /// Progresses an operation. Returns true when it has completed.
  bool progress(Operation& operation) const;
  /// Returns whether `oldest`, the oldest operation in flight, has ended. Throws its error.
  bool retire(const Operation& oldest) const;
  /// Releases the operation's resources of the device.
  void release(Operation& operation) const noexcept;

  /// Device paths on which operations have begun, by DevicePath.
  using BegunPaths = std::array<bool, kDevicePaths>;
  /// Adds the path of `operation` to `begun` if it has begun on the GPU.
  static void add_begun(const Operation& operation, BegunPaths& begun) noexcept {
    if (operation.on_device && operation.device->started)
      begun[static_cast<std::size_t>(operation.call->plan.device_path)] = true;
  }
  /// Abandons the paths of `begun` after a failure.
  void abandon(const BegunPaths& begun) const noexcept;

  /// Returns the NCCL communicator of the ranks with the same color. Returns null for a negative color. Requires that
  /// NCCL connects all ranks. All ranks call it. `sequence`: number of the next call.
  std::unique_ptr<NcclComm> split(int color, int key, std::uint64_t sequence) const;
  /// Leaves the NCCL communicators in order.
  void leave() const noexcept;

 private:
  const CommunicatorResources& resources_;
};

}  // namespace collectives
