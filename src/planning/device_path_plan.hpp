// Plan for a device path, the way in which a call on GPU memory is done. It is made from the plan for host memory, the
// algorithm for CPU memory.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

/// Turns the plan for host memory into the plan for the chosen device path. Rounds cut the whole vector, or each rank's
/// part of it. `longest` is the length of the whole vector or of the longest part, in elements.
///
/// For the path `nccl`, the algorithm, the protocol and the estimate are replaced. For the path `steps`, the vector is
/// cut into messages of a length that suits GPUs, and the estimates remain those for host memory. For the other paths,
/// only the name and the reason of the path are set.
void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest);

}  // namespace collectives
