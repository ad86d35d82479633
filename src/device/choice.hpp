// Which way an operation on device memory takes: a pure function of what is equal on all ranks.
#pragma once

#include <string>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace collectives {

struct WayChoice {
  Way way = Way::host;
  std::string reason = {};  ///< in words
};
WayChoice choose_way(const Request& request, const Topology& topology);

}  // namespace collectives
