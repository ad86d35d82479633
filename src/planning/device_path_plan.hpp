// Plan for a device path, a way to perform calls on GPU memory. The plan is made from the plan of the same call on CPU
// memory, the plan for host memory.
#pragma once

#include <cstddef>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

/// Turns the plan for host memory into the plan for the chosen device path. A plan cuts the vector, or each rank's part
/// of it, into segments. Each round handles one segment of the vector, or of each part. The argument `longest` is the
/// number of elements of the vector, or of the longest part.
///
/// For the path `nccl`, the backend, the protocol, the estimate and the use of the codec are replaced. For the path
/// `steps`, the segments get a length that suits GPUs. The estimates remain those for host memory. For all other paths,
/// only the path's name and reason are stored.
void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest);

}  // namespace collectives
