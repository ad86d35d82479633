// Plan for a device path, a way to perform calls on GPU memory. The planner first makes the plan for host memory, which
// the call would have if its buffers were in CPU memory. The function fill_for_path() then adapts this plan to the
// path.
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
/// `steps`, changes the length of segments, because GPUs need longer ones. A segment is the elements of a part that one
/// round processes. The estimates remain those for host memory. For other paths, only stores the path's name and
/// reason.
void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest);

}  // namespace collectives
