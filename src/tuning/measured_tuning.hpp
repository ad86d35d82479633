// Numbers that nobody has given are measured at the first use on a machine, by the ranks that are there for it, and
// kept in a cache (tuning_cache.hpp); rank 0's counts.
#pragma once

#include <chrono>
#include <optional>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "collectives/transport.hpp"
#include "topology/host_map.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives {

/// What the numbers measured by so many ranks on a host are good for.
Situation situation_of(int cores, int ranks, bool kernel_copy, std::optional<double> barrier_ns);

/// Those of rank 0's host, `host`. All ranks call it; a few exchanges where there is something to measure.
Tuning tuning_of_machine(Bootstrap&, const Host& host, std::chrono::nanoseconds timeout, Deadline);

/// Those of the wire, into `numbers`. All ranks call it; up to three exchanges.
void measure_wire(Bootstrap&, const Topology&, Wire&, Tuning& numbers, Deadline);

}  // namespace collectives
