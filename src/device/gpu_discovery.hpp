// What ranks tell one another of their GPUs when they meet, and what follows: whether all have one, whether NCCL
// connects them, and whether those of a host can open one another's memory, which each tries on a little of it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/topology.hpp"
#include "device/device.hpp"
#include "topology/host_map.hpp"

namespace collectives {

class GpuDiscovery {
 public:
  /// Finds the GPU of this rank, if its buffers may be those of one. Throws Error{unsupported} where the program says
  /// that they are and there is none.
  GpuDiscovery(Rank rank, bool wanted, bool required);
  ~GpuDiscovery();
  GpuDiscovery(const GpuDiscovery&) = delete;
  GpuDiscovery& operator=(const GpuDiscovery&) = delete;

  /// What this rank says, who was asked for `backend`: "gpu" in what ranks say.
  nlohmann::json peer_info(std::string_view backend);
  /// Why this rank's GPU does not reach those of the others of its host; empty where it does.
  std::string why_no_peer_access(const Host&, const std::vector<nlohmann::json>& peer_infos) const;

  /// When all have tried. Null: there is none.
  std::unique_ptr<Device> release_device();

  std::string no_device;       ///< why there is none, in words
  const Nccl* nccl = nullptr;  ///< where that can be used, by this rank

 private:
  class PeerAccessProbe;
  std::unique_ptr<Device> device_;
  std::unique_ptr<PeerAccessProbe> peer_access_probe_;
};

/// What follows from what all ranks say, by rank, but for `apart`, `within_reach` and what NCCL does in hosts.
Topology::Gpus gpus_of(const std::vector<nlohmann::json>& peer_infos);
/// That, when the others are known.
void agree_on_nccl_in_hosts(Topology& topology, const std::vector<nlohmann::json>& peer_infos);

}  // namespace collectives
