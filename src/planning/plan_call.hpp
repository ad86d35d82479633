// Plan of a call of a communicator: the algorithm with which the call is done. A call with a top-k compressor also has
// a sparse plan. The sparse plan states whether only selected elements are sent.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/plan.hpp"
#include "collectives/top_k.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/sparse_plan.hpp"

namespace collectives {

/// Top-k compressor of a call.
struct TopKCall {
  std::size_t k;  ///< number of elements that top-k selects
  const TopKOptions& options;
};

struct CallPlan {
  Plan plan;  ///< plan for sending the whole vector
  std::optional<SparsePlan> sparse = {};
};

/// Returns the plan of a call, with the sparse plan if the call has a compressor. If it has none, `top_k` is null. Also
/// serves choose_plan(), and throws as that function does.
CallPlan plan_call(const Request&, const Topology&, const TuningParameters&, const TopKCall* top_k = nullptr);

}  // namespace collectives
