// DeviceMemories: allocates GPU memory for the program, or registers GPU memory with NCCL. It keeps a list of this
// memory. NCCL accesses registered memory faster.
//
// If NCCL connects the ranks and has ncclMemAlloc and ncclCommRegister, NCCL allocates new memory. New memory and
// memory of the program are then registered with the NCCL communicator of the ranks. Otherwise CUDA allocates new
// memory, and no memory is registered. Kernels of other ranks may access memory that CUDA has allocated, if the GPUs of
// the host can access one another's memory.
//
// Registration is local: each rank registers its memory without the other ranks.
//
// The object owns the list. Communicator::Impl is the only caller. The caller must hold the communicator's lock,
// ProgressThread::guard(). Before allocate(), add() and remove(), Communicator::Impl waits until all operations have
// ended. Reason: these functions may block until the GPU has done its work, and this work may wait for other ranks.
//
// Price of local registration: NCCL does not use its fastest kernels. These kernels need symmetric windows:
// registrations that all ranks make together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device_memory.hpp"
#include "communicator/communicator_resources.hpp"

namespace collectives {

/// GPU memory to which a DeviceMemory refers. A DeviceMemory is the public handle that a program holds.
struct DeviceAllocation {
  std::shared_ptr<Device> device;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool attached = false;             ///< whether a communicator has this memory in its list
  bool own = false;                  ///< whether the destructor of the DeviceMemory frees the memory
  const Nccl* taken_from = nullptr;  ///< NCCL library that allocated the memory; null: NCCL did not
  DeviceAccess access = DeviceAccess::copied;
  std::string how = {};  ///< details of `access`, as text
};

class DeviceMemories {
 public:
  explicit DeviceMemories(const CommunicatorResources& resources) noexcept : resources_(resources) {}

  /// Throws Error{unsupported} if this communicator does not accept buffers in GPU memory.
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
  /// Adds `memory` to the list. Registers it if NCCL connects the ranks.
  void attach(DeviceAllocation& memory);

  const CommunicatorResources& resources_;
  std::vector<DeviceAllocation*> memories_;
};

}  // namespace collectives
