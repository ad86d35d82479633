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

#include "device/intra_host_path.hpp"

namespace collectives {

/// Kernel path for one host. Local rank numbers equal the communicator's rank numbers.
class KernelPath final : public IntraHostPath {
 public:
  KernelPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers)
      : IntraHostPath(device, arena, std::move(peers), arena.self()) {}

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;

 private:
  enum class Phase : std::uint8_t { preparing, packing, gathering, working, leaving };

  PathState wait_for(PathState state, Phase phase);
  void describe(const PlannedCall& planned);

  const Job* job_ = nullptr;
  Phase phase_ = Phase::preparing;
};

}  // namespace collectives
