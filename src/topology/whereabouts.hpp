// Where the ranks are: each says on which host, in which domain of it and on which cores it runs, and from what all say
// follow the hosts, the machines under them and the cores they may use.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/topology.hpp"

namespace collectives {

/// What this rank says: "host", "machine", "domain", "affinity", "cores", "cores_said", "pid". A transport other than
/// shared memory makes every rank a host of its own. Throws Error{system} where /proc cannot be read.
nlohmann::json whereabouts(const Bootstrap&, std::string_view transport);

/// What is known of a host from what its ranks say.
struct Host {
  Host(const std::vector<Rank>& members, const std::vector<nlohmann::json>& cards);
  bool crowded() const { return static_cast<int>(ranks.size()) > cores; }
  bool has(Rank rank) const;

  std::vector<Rank> ranks;
  std::vector<int> processes;
  int cores = 0;         ///< that they may use together
  bool threads = false;  ///< all of them are threads of one process
};

struct Places {
  /// From what all ranks say, by rank.
  explicit Places(const std::vector<nlohmann::json>& cards);
  const Host& host_of(Rank) const;
  /// More ranks than cores on the host of `rank`, or on its machine.
  bool crowded(Rank) const;

  Topology topology;
  std::vector<Host> hosts;
};

}  // namespace collectives
