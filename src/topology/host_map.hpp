// Host map: which ranks share a host and a machine, and how many cores they have.
//
// Each rank describes its host, its domain and its cores. The bootstrap exchanges these descriptions, and every rank
// computes the same map from them.
//
// Several hosts may be one machine: containers and namespaces of one machine have the same boot id. Their ranks share
// its cores.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/topology.hpp"

namespace collectives {

/// Returns the description of this rank: "host", "machine", "domain", "affinity", "cores", "cores_set", "pid". With a
/// transport other than shared memory, every rank gets a host of its own. Throws Error{system} if /proc cannot be read.
nlohmann::json discover_host(const Bootstrap&, std::string_view transport);

/// Host of the map, made from the descriptions of its ranks.
struct Host {
  Host(const std::vector<Rank>& members, const std::vector<nlohmann::json>& peer_infos);
  bool oversubscribed() const { return static_cast<int>(ranks.size()) > cores; }
  bool has(Rank rank) const;

  std::vector<Rank> ranks;
  std::vector<int> processes;
  int cores = 0;         ///< that the ranks may use together
  bool threads = false;  ///< all ranks are threads of one process
};

struct HostMap {
  /// Computes the map from the descriptions of all ranks, by rank.
  explicit HostMap(const std::vector<nlohmann::json>& peer_infos);
  const Host& host_of(Rank) const;
  /// Returns true if the host of `rank`, or its machine, has more ranks than cores.
  bool oversubscribed(Rank) const;

  Topology topology;
  std::vector<Host> hosts;
};

}  // namespace collectives
