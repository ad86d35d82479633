// Device path in which each rank's GPU accesses the memory of the other GPUs of the host.
//
// The path is the counterpart of zero copy on the host (shared_memory/zero_copy.hpp), with a kernel in place of a loop.
// The vector is divided among the ranks. For its share a rank's kernel reads every source once, combines in rank order
// and writes every destination. An all-reduce of p ranks takes p kernels and no copy. Its bits are those of the same
// call on the host.
//
// Price: a call returns when the last GPU has finished, even with a stream. The kernels of the other ranks write into
// this rank's output, and this rank's stream cannot wait for them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/host_share.hpp"
#include "device/intra_host_call.hpp"

namespace collectives {

/// Kernel path for one host. Local rank numbers equal the communicator's rank numbers.
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
  HostTask task_;  // The call.
  IntraHostCall host_;
  HostShare share_;
  const Job* job_ = nullptr;
  Phase phase_ = Phase::preparing;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
