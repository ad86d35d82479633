// All plans that selection has the choice of, for those who look at more than the cheapest.
#pragma once

#include <vector>

#include "collectives/plan.hpp"

namespace collectives {

/// In order of their estimates, at least one; without reasons and runners-up. Throws as choose_plan() does.
std::vector<Plan> candidate_plans(const Request&, const Topology&, const Tuning&);

}  // namespace collectives
