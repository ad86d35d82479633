// candidate_plans(): returns the plans among which the planner chooses. Each plan is one algorithm that can perform the
// requested call, with its protocol, its segments and its estimated time.
#pragma once

#include <vector>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

/// Returns plans of all algorithms that can perform the request. The plan with the shortest estimated time is first.
/// The list is never empty. The fields `reason` and `runners_up` of the plans are empty. Throws the errors of
/// choose_plan(). Also throws Error{unsupported} for backend "nccl", whose time the library cannot estimate.
std::vector<Plan> candidate_plans(const Request&, const Topology&, const TuningParameters&);

}  // namespace collectives
