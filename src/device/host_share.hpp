// HostShare: performs the share of one rank in a collective of a host. The work is done on the GPU of that rank. A
// share is the range of the vector that one rank processes for all ranks of the host (HostTask::share()).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/buffer_exchange.hpp"
#include "device/device.hpp"
#include "shared_memory/host_task.hpp"

namespace collectives {

class HostShare {
 public:
  explicit HostShare(Device& device) : device_(device) {}

  struct Reduction {
    ReduceOp op;
    DataType type = DataType::f32;
    bool unreduced = true;  ///< Whether the sources are inputs of ranks, not partial results.
    /// Number of ranks by which fold() divides an average. If it is 0, fold() does not divide, because the result is
    /// partial.
    int finish_ranks = 0;
  };
  /// Puts the work on the share of local rank `self` into the stream. In a reduction, a kernel reads the share from
  /// every source once. It combines the values in rank order, and writes up to 8 destinations. Copies fill all other
  /// destinations. `buffers`: the buffers of all ranks of the host.
  void perform(const HostTask& task, int self, std::span<const BufferExchange::Buffers> buffers,
               const Reduction& reduction, Device::Stream stream);

 private:
  Device& device_;
  // Arguments of the kernel. They are kept between calls, so that later calls allocate no memory.
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;
};

/// Puts copies into the stream: `bytes` bytes from `from` to each address in `to`, except to `from` itself.
void copy_to_all(Device& device, std::span<std::byte* const> to, const std::byte* from, std::size_t bytes,
                 Device::Stream stream);

}  // namespace collectives
