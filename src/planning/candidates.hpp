// List of all plans for a request, for callers that need more than the cheapest plan.
#pragma once

#include <vector>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

/// Returns at least one plan, sorted by estimate. The plans have no reason and no runners-up. Throws as choose_plan()
/// does.
std::vector<Plan> candidate_plans(const Request&, const Topology&, const TuningParameters&);

}  // namespace collectives
