// Registry: the memory ranges that a program has registered with NCCL, NVIDIA's library of collectives between GPUs.
// NCCL can access registered memory without a copy.
//
// Each rank registers its own memory by ncclCommRegister(), with the NCCL communicator of the Communicator that the
// program calls. A rank registers memory without the other ranks. Some ranks may register no memory. Ranges are added
// and removed only while no operation is in progress. Reason: when a range is added or removed, CUDA may wait for the
// GPU, and NCCL may wait for other ranks.
//
// Any number of ranges inside a registered range share its registration. NCCL therefore registers each byte once. If a
// range overlaps a registered range but does not lie inside it, the registry throws an error. Reason: the two
// registrations could not be removed separately.
//
// Price of registering without the other ranks: NCCL does not use its fastest kernels. These kernels need symmetric
// windows: registrations that all ranks create together.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device.hpp"
#include "device/nccl_comm.hpp"

namespace collectives {

class Registry {
 public:
  Registry(Device& device, NcclComm& nccl_comm) : device_(device), nccl_comm_(nccl_comm) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // All functions require that no operation is in progress. They throw the errors of the NCCL communicator. Function
  // add() throws Error{invalid_argument} for a range that it refuses. The errors name no rank and no operation; the
  // caller adds both.

  /// Registers a range, or adds a use to the registration of a range that contains it.
  void add(std::byte* data, std::size_t bytes);
  /// Removes one use of the registration that contains `data`. If that was the last use, removes the registration. Call
  /// this function once for each add(). The registration is forgotten even if NCCL refuses to remove it.
  void remove(const std::byte* data);
  /// Removes all ranges.
  void clear();

 private:
  struct Range {
    std::byte* first;
    std::byte* last;  // End of the range, exclusive.
    void* handle;
    std::size_t uses;
  };
  void deregister(void* handle);

  Device& device_;
  NcclComm& nccl_comm_;
  std::vector<Range> ranges_;
};

}  // namespace collectives
