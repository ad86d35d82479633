// What a program has registered with NCCL. A range that lies within one that is registered shares it, however often, so
// NCCL is told of each byte once; one that overlaps it otherwise is refused, for what would become of the rest when the
// one goes?
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

  // Nothing is under way. Each throws Error without rank and operation: invalid_argument for ranges that overlap, and
  // what the NCCL communicator throws.

  void add(std::byte* data, std::size_t bytes);
  /// Once for each add(). What is refused is forgotten all the same.
  void remove(const std::byte* data);
  /// Everything.
  void clear();

 private:
  struct Range {
    std::byte* first;
    std::byte* last;  // behind it
    void* handle;
    std::size_t uses;
  };
  void deregister(void* handle);

  Device& device_;
  NcclComm& nccl_comm_;
  std::vector<Range> ranges_;
};

}  // namespace collectives
