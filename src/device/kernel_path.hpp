// KernelPath: performs a call among the ranks of one host by kernels that access the memory of all their GPUs. It is a
// device path, a way to perform calls on GPU memory.
//
// The vector is divided into one share per rank. In a reduce-scatter or all-gather, a share is the rank's own part. In
// all other calls, the shares are about equally long. In an all-reduce, the kernel of a rank reads the rank's share
// from the buffers of all ranks. It combines the values in rank order, and writes the result to the buffers of all
// ranks. If the kernels can access all buffers, an all-reduce of up to 8 ranks needs one kernel per rank and no copy.
// The result has the same bits as that of the same call on CPU memory. ZeroCopy (shared_memory/zero_copy.hpp) works in
// the same way on CPU memory.
//
// Price: a call ends only when the last GPU has finished, even if the caller passes a stream. Reason: the kernels of
// the other ranks write into this rank's output. This rank's stream cannot wait for these kernels.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/host_share.hpp"
#include "device/intra_host_call.hpp"

namespace collectives {

/// Device path for a communicator on one host. Local rank numbers therefore equal rank numbers.
class KernelPath final : public PathExecutor {
 public:
  KernelPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers)
      : arena_(arena), host_(device, arena, std::move(peers), arena.self()), share_(device) {}

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override { host_.abandon(); }
  std::uint64_t moves() const noexcept override { return moves_ + host_.moves(); }

 private:
  enum class Phase : std::uint8_t { preparing, packing, gathering, working, leaving };

  PathState wait_for(PathState state, Phase phase);
  void describe(const PlannedCall& planned);

  const Arena& arena_;
  HostTask task_;  // Description of the call.
  IntraHostCall host_;
  HostShare share_;
  const Job* job_ = nullptr;
  Phase phase_ = Phase::preparing;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
