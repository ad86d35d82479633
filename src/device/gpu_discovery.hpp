// Exchange of information about GPUs while a communicator is constructed.
//
// It answers three questions: do all ranks have a GPU, does NCCL connect them, and can the ranks of a host open each
// other's GPU memory. To test the third one, each rank allocates a little GPU memory, and its peers try to open it by
// its handle. The handle travels in the peer information, the record that each rank sends to all ranks anyway.
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
  /// Finds the GPU of this rank, if `wanted`: the program may pass buffers in device memory. Throws Error{unsupported}
  /// if there is no GPU but one is `required`.
  GpuDiscovery(Rank rank, bool wanted, bool required);
  ~GpuDiscovery();
  GpuDiscovery(const GpuDiscovery&) = delete;
  GpuDiscovery& operator=(const GpuDiscovery&) = delete;

  /// Returns the entry "gpu" of this rank's peer information. `backend` is the backend that this rank requested.
  nlohmann::json peer_info(std::string_view backend);
  /// Returns why this rank's GPU has no access to the GPU memory of the other ranks of its host. Empty: it has access.
  std::string why_no_peer_access(const Host&, const std::vector<nlohmann::json>& peer_infos) const;

  /// Returns the GPU, or null if there is none. Call after all ranks have tested the access.
  std::unique_ptr<Device> release_device();

  std::string no_device;       ///< Reason why there is no GPU.
  const Nccl* nccl = nullptr;  ///< NCCL, if this rank can use it. Otherwise null.

 private:
  class PeerAccessProbe;
  std::unique_ptr<Device> device_;
  std::unique_ptr<PeerAccessProbe> peer_access_probe_;
};

/// Combines the peer information of all ranks. The fields `apart`, `peer_access` and `nccl_in_hosts` keep their
/// defaults.
Topology::Gpus gpus_of(const std::vector<nlohmann::json>& peer_infos);
/// Determines whether NCCL connects the GPUs inside each host. Requires the other fields of Topology::Gpus.
void agree_on_nccl_in_hosts(Topology& topology, const std::vector<nlohmann::json>& peer_infos);

}  // namespace collectives
