// DeviceCalls: performs the operations of a communicator on GPU memory. An operation is one call, from its issue to its
// end.
//
// The function place() determines whether the buffers of a call are in CPU (host) or GPU (device) memory. The function
// prepare() fills the state of an operation. start() begins the work, progress() continues it, and release() ends it. A
// device path does the work. A device path is a way to perform an operation, such as by NCCL or by kernels of this
// library (device/path_executor.hpp). The function split() makes NCCL communicators of some of the ranks. When the
// communicator ends, leave() ends all NCCL communicators.
//
// DeviceCalls owns no operations. Each operation owns a DeviceCall: the state of the operation on the GPU.
// CommunicatorResources owns the device paths. OperationSteps calls start(), progress() and retire(). OperationQueue
// calls abandon(). CallPreparation calls place(). Communicator::Impl calls prepare(), release(), split() and leave().
// The caller must hold the communicator's lock, ProgressThread::guard(). Only place() needs no lock.
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

  /// Determines whether the buffers are in host or device memory, and sets `call.memory`. Throws Error if this
  /// communicator cannot use the buffers or the stream. If the GPU fails to tell where the memory is, returns its
  /// error. The caller passes the returned error to prepare(), so that the operation fails on all ranks.
  std::exception_ptr place(Call& call, const Options& options) const;

  /// Makes `operation` an operation on GPU memory. `blocking`: whether the call is blocking. `refused`: the error that
  /// place() returned for this call, or null.
  void prepare(Operation& operation, const Call& call, const Options& options, bool blocking,
               std::exception_ptr refused) const;
  /// Returns whether the operation would start by allocating GPU memory.
  bool takes_memory(const Operation& operation) const noexcept {
    return resources_.path_of(operation).takes_memory(*operation.device, *operation.call);
  }
  /// Starts an operation on its device path. Requires that the arrival record has been published. The record shows
  /// peers that this rank has entered the call.
  void start(Operation& operation) const;
  /// Progresses an operation. Returns true when it has completed.
  bool progress(Operation& operation) const;
  /// Returns whether `oldest`, the oldest operation whose work is all in GPU streams, has ended. Throws its error.
  bool retire(const Operation& oldest) const;
  /// Releases the GPU resources of the operation, such as events.
  void release(Operation& operation) const noexcept;

  /// Flags by DevicePath: an operation has begun on the path.
  using BegunPaths = std::array<bool, kDevicePaths>;
  /// Sets the element of `operation`'s path in `begun`, if the operation has begun on the GPU.
  static void add_begun(const Operation& operation, BegunPaths& begun) noexcept {
    if (operation.on_device && operation.device->started)
      begun[static_cast<std::size_t>(operation.call->plan.device_path)] = true;
  }
  /// Makes the paths in `begun` abandon their operations after a failure.
  void abandon(const BegunPaths& begun) const noexcept;

  /// Returns the NCCL communicator of the ranks with one color. Returns null for a negative color. Requires that NCCL
  /// connects all ranks. All ranks call split() together. `sequence`: number of the next call.
  std::unique_ptr<NcclComm> split(int color, int key, std::uint64_t sequence) const;
  /// Leaves the NCCL communicators in order.
  void leave() const noexcept;

 private:
  const CommunicatorResources& resources_;
};

}  // namespace collectives
