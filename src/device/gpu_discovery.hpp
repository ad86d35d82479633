// GpuDiscovery: finds the GPU of a rank during communicator construction. The functions of this file also answer four
// questions:
//
// 1. Does every rank have a GPU?
// 2. Does NCCL connect the GPUs of all ranks?
// 3. Can the GPUs of a host access one another's memory?
// 4. If they cannot, does NCCL connect the GPUs inside each host?
//
// The answers come from the peer information, the record that each rank sends to all ranks during construction. For the
// third question, each rank allocates a little GPU memory. The rank's peer information holds a handle of this
// allocation. Ranks of the host in other processes try to open the allocation by this handle. Ranks in the same process
// call PeerAccess::enable() instead.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_record.hpp"
#include "collectives/topology.hpp"
#include "device/device.hpp"
#include "topology/host_map.hpp"

namespace collectives {

class GpuDiscovery {
 public:
  /// Finds the GPU of this rank if `wanted` is true, that is, if the program may pass buffers in GPU memory. Throws
  /// Error{unsupported} if a GPU is wanted and `required`, but there is none.
  GpuDiscovery(Rank rank, bool wanted, bool required);
  ~GpuDiscovery();
  GpuDiscovery(const GpuDiscovery&) = delete;
  GpuDiscovery& operator=(const GpuDiscovery&) = delete;

  /// Returns the entry "gpu" of this rank's peer information. `backend` is the backend that this rank requested.
  nlohmann::json peer_info(std::string_view backend);
  /// Returns the reason why this rank's GPU cannot access the GPU memory of its host. Returns an empty text if the GPU
  /// can. The text is also empty if this rank has no GPU, or is alone on its host.
  std::string why_no_peer_access(const Host&, const std::vector<JsonRecord>& peer_infos) const;

  /// Returns the GPU, or null if there is none. Frees the memory that the peers try to open. Requires that all ranks
  /// have called why_no_peer_access() before.
  std::unique_ptr<Device> release_device();

  std::string no_device;       ///< Reason why there is no GPU.
  const Nccl* nccl = nullptr;  ///< NCCL, if this rank can use it. Otherwise null.

 private:
  class PeerAccessProbe;
  std::unique_ptr<Device> device_;
  std::unique_ptr<PeerAccessProbe> peer_access_probe_;
};

/// Derives the GPU fields of the topology from the peer information of all ranks. Leaves `apart`, `peer_access` and
/// `nccl_in_hosts` at their defaults.
Topology::Gpus gpus_of(const std::vector<JsonRecord>& peer_infos);
/// Determines whether NCCL connects the GPUs inside each host, and stores the answer in `topology`. Does nothing if no
/// device path needs the answer, for example on one host. Requires the other fields of Topology::Gpus.
void agree_on_nccl_in_hosts(Topology& topology, const std::vector<JsonRecord>& peer_infos);

}  // namespace collectives
