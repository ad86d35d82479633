// Simulation of the Steps of all ranks, event by event. A Step is one action of a rank, such as to receive, add and
// send values. tools/simulation.hpp describes the model of hosts and links.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "core/tuning_parameters.hpp"
#include "steps/algorithm.hpp"
#include "tools/simulation.hpp"
#include "tools/simulation/model.hpp"
#include "tools/simulation/symmetry.hpp"

namespace collectives::simulation {

struct Played {
  double finished_us = 0;  ///< time at which the last rank is done
  std::size_t hops = 0;    ///< number of messages in the longest chain of messages, each of which depends on the one
                           ///< before
  std::size_t events = 0;
  std::vector<std::size_t> bytes_out;  ///< bytes sent to other hosts, by host
};

/// Simulates a call on the hosts of `block`. These hosts represent all hosts. Throws std::logic_error if the ranks wait
/// for one another forever.
Played play(const Call& call, RankView& view, const Topology& topology, const TuningParameters& tuning,
            const Fabric& network, const Block& block);

}  // namespace collectives::simulation
