// Memory ranges that a program has registered with NCCL.
//
// Each rank registers memory by itself, by ncclCommRegister, in the communicator that the program names. No rank waits
// for another, and a rank may leave out the registration. A change waits until no operation is in progress, because
// CUDA may wait for the GPU, and NCCL for other ranks.
//
// A range inside a registered range shares its registration, any number of times, so NCCL registers each byte once. A
// range that overlaps a registered range in part is refused, because its registration could not be removed separately.
//
// Price: NCCL's symmetric windows are not available. NCCL's fastest kernels need them, and all ranks must create them
// together.
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

  // All functions require that no operation is in progress. They throw Error without rank and operation:
  // invalid_argument for overlapping ranges, and the errors of the NCCL communicator.

  void add(std::byte* data, std::size_t bytes);
  /// Removes one use of a range. Call once for each add(). The range is forgotten even if NCCL refuses.
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
