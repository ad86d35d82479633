// Kernels: every rank's GPU reaches into the memory of the others, as the processors do at zero copy
// (shared_memory/zero_copy.hpp). The vector is shared out among the ranks; for its share a rank's kernel reads every
// source once, combines in rank order and writes every destination. An all-reduce of p ranks is p kernels and no copy,
// and gives the bits that one on the host gives.
//
// The ranks meet twice. So a call returns when the last GPU has finished, with a stream, too: the kernels of others
// write into this rank's output, and its stream could not wait for them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/intra_host_path.hpp"

namespace collectives {

/// On one host, where local ranks are the ranks.
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
