// DeviceMemories: the memory of this rank's GPU that a communicator has allocated or registered for the program.
//
// If NCCL connects the ranks, NCCL allocates the memory. It is then registered with the communicator that was asked
// (ncclCommRegister). Otherwise the device allocates plain memory, which kernels can access.
//
// Each rank registers memory for itself. No rank waits for another, and a rank that does not register harms no other.
//
// The object owns the list of these allocations. Communicator::Impl is the only caller. Lock: the caller holds
// ProgressThread::guard(). Except for detach(), it first waits until no operation is queued or in flight. CUDA may wait
// for the GPU, and NCCL for other ranks.
//
// Price: no symmetric windows. NCCL's fastest kernels need them, but all ranks must make them together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device_memory.hpp"
#include "communicator/communicator_resources.hpp"

namespace collectives {

/// Range of GPU memory behind a DeviceMemory.
struct DeviceAllocation {
  std::shared_ptr<Device> device;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool attached = false;             ///< whether a communicator has it in its list
  bool own = false;                  ///< whether the destructor of the DeviceMemory frees the memory
  const Nccl* taken_from = nullptr;  ///< library that allocated the memory; null: the device did
  DeviceAccess access = DeviceAccess::copied;
  std::string how = {};  ///< details of `access`, as text
};

class DeviceMemories {
 public:
  explicit DeviceMemories(const CommunicatorResources& resources) noexcept : resources_(resources) {}

  /// Throws Error{unsupported} if this communicator takes no device buffers.
  void check_supported() const;
  /// Allocates memory and adds it to the list. Throws Error.
  void allocate(DeviceAllocation& memory, std::size_t bytes);
  /// Adds the program's memory to the list. Throws Error.
  void add(DeviceAllocation& memory, std::byte* data, std::size_t bytes);
  /// Removes memory from the list, and ends its registration.
  void remove(DeviceAllocation& memory) noexcept;
  /// Removes all memory from the list when the communicator ends. The memory itself stays valid.
  void detach() noexcept;

 private:
  /// Adds `memory` to the list, and registers it if NCCL connects the ranks.
  void attach(DeviceAllocation& memory);

  const CommunicatorResources& resources_;
  std::vector<DeviceAllocation*> memories_;
};

}  // namespace collectives
