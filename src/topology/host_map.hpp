// Host map: tells which ranks share a host, which hosts share a machine, and how many cores each host has. A host is a
// set of ranks that share memory.
//
// Each rank describes its host, its cores, and its NUMA domain (domain.hpp). The bootstrap exchanges these
// descriptions. Every rank computes the same map from all descriptions.
//
// One machine may have several hosts. For example, ranks in different containers of a machine share its cores, but no
// memory, so each container is a host. Two hosts lie on the same machine if their kernels have equal boot ids.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json_record.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/topology.hpp"

namespace collectives {

/// Returns the description of this rank, a JSON object with "host", "machine", "domain", "affinity", "cores",
/// "cores_set" and "pid". If `transport` names a transport other than shared memory, every rank counts as a host of its
/// own. Throws Error{system} if the name of the host needs the boot id, and /proc cannot be read.
nlohmann::json discover_host(const Bootstrap&, std::string_view transport);

/// One host of the map.
struct Host {
  Host(const std::vector<Rank>& members, const std::vector<JsonRecord>& peer_infos);
  bool oversubscribed() const { return static_cast<int>(ranks.size()) > cores; }
  bool has(Rank rank) const;

  std::vector<Rank> ranks;
  std::vector<int> processes;
  int cores = 0;         ///< number of cores that the ranks of the host may use together
  bool threads = false;  ///< all ranks are threads of one process
};

struct HostMap {
  /// Computes the map from the descriptions of all ranks, in the order of the ranks. If a field is missing or invalid,
  /// throws Error{bootstrap} that names this field.
  explicit HostMap(const std::vector<JsonRecord>& peer_infos);
  const Host& host_of(Rank) const;
  /// Returns true if the host of `rank`, or its machine, has more ranks than cores.
  bool oversubscribed(Rank) const;

  Topology topology;
  std::vector<Host> hosts;
};

}  // namespace collectives
