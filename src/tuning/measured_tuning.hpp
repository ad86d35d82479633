// Measured tuning: finds the tuning values that neither the program nor an environment variable has set. Tuning values
// are numbers by which the library chooses how to perform a call.
//
// When the library is first used on a machine, it measures the values. It then stores them in the cache, a file of the
// user (tuning_cache.hpp). Only rank 0 reads and writes its file.
//
// The ranks on the host of rank 0 measure the values of the machine, if at least two of them are processes with a core
// each. A measured value replaces the built-in one only if it is clearly better. If the machine is too busy, nothing is
// stored, and a later communicator measures again. The first ranks of two hosts measure the values of the wire, the
// transport between hosts. With four or more hosts, all hosts then form pairs, which measure the wire at the same time.
//
// Price: a measurement of the machine takes 20 to 60 ms, or some 100 ms on a slow machine. Values are valid for one
// number of ranks and one distance between their cores. The distance is the time of a barrier, which is shorter if the
// cores share a cache. Later communicators without a tuning must therefore time a barrier. That takes 3 ms and nine
// exchanges between the ranks. Values that were measured under unusual load stay in the file until a user deletes them.
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

/// Returns the key of the cache entry for values that `ranks` ranks of a host have measured.
Situation situation_of(int cores, int ranks, bool kernel_copy, std::optional<double> barrier_ns);

/// Returns the tuning for `host`, the host of rank 0. All ranks call it. Makes nine exchanges between the ranks, or
/// none if nothing can be measured.
TuningParameters tuning_of_machine(Bootstrap&, const Host& host, std::chrono::nanoseconds timeout, Deadline);

/// Stores the values of the wire in `numbers`. All ranks call it. Makes up to three exchanges between the ranks.
void measure_wire(Bootstrap&, const Topology&, Wire&, TuningParameters& numbers, Deadline);

}  // namespace collectives
