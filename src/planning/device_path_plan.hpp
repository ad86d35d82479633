// Plan for a device path, a way to perform calls on GPU memory. The planner first makes a plan for host (CPU) memory,
// as if the buffers of the call were in host memory. The function fill_for_path() then adapts this plan to the path.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

/// Changes `plan`, the plan for host memory, into the plan for the chosen device path. `longest`: number of elements of
/// the vector, or of its longest part if the algorithm divides the vector among the ranks.
///
/// For the path `nccl`, replaces the backend, the protocol, the estimate and the use of the codec. For the path
/// `steps`, makes the segments longer, because GPUs need longer ones. A segment consists of the elements of a part that
/// one round processes. The estimates of the path `steps` stay those for host memory. For other paths, only stores the
/// name of the path and the reason for its choice.
void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest);

}  // namespace collectives
