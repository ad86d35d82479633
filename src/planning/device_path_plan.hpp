// Plan for a device path: fills in the properties that a path needs and that the plan for host memory lacks.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

/// Turns the plan for host memory into the plan for the chosen device path. `longest` is the number of elements of the
/// longest part that the rounds cut.
///
/// The path `nccl` replaces the properties of Steps. The path `steps` cuts the vector into messages of a length that
/// suits GPUs; the estimates remain those of the host. The other paths add only their name and reason.
void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest);

}  // namespace collectives
