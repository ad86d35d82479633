// Measured tuning: values that neither the program nor the environment gives.
//
// They are measured at the first use on a machine. A cache keeps them (tuning_cache.hpp). The cache of rank 0 counts.
//
// Values of a machine are measured by the ranks of rank 0's host. Nothing is measured unless those ranks are processes
// with a core each. A built-in value stays unless another one is clearly better. A machine that is too busy is measured
// another time. Values of the wire are measured by one rank of each host.
//
// Price: a calibration takes 20 to 60 ms, once for each distance. It takes 100 ms or so on a slow machine. Every later
// construction makes the communicator and the barrier that show the distance. That takes 3 ms and nine exchanges.
// Values measured in an unusual moment stay until their entry is deleted.
#pragma once

#include <chrono>
#include <optional>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "collectives/transport.hpp"
#include "core/tuning_parameters.hpp"
#include "topology/host_map.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives {

/// Returns the key of values that `ranks` ranks on a host have measured.
Situation situation_of(int cores, int ranks, bool kernel_copy, std::optional<double> barrier_ns);

/// Returns the tuning for `host`, the host of rank 0. All ranks call it. Makes nine exchanges, or none if nothing can
/// be measured.
TuningParameters tuning_of_machine(Bootstrap&, const Host& host, std::chrono::nanoseconds timeout, Deadline);

/// Fills in the values of the wire in `numbers`. All ranks call it. Makes up to three exchanges.
void measure_wire(Bootstrap&, const Topology&, Wire&, TuningParameters& numbers, Deadline);

}  // namespace collectives
