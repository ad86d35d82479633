// Plays the Steps of all ranks, event by event. tools/simulation.hpp describes the model.
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
  std::size_t hops = 0;    ///< length of the longest chain of messages in which each depends on the one before
  std::size_t events = 0;
  std::vector<std::size_t> bytes_out;  ///< bytes sent to other hosts, by host
};

/// Plays a call on the hosts of `block`. Throws std::logic_error if ranks wait for each other for ever.
Played play(const Call& call, RankView& view, const Topology& topology, const TuningParameters& tuning,
            const Fabric& network, const Block& block);

}  // namespace collectives::simulation
