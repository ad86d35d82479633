// plan_call(): chooses the plan of a call. A plan is an algorithm with its protocol and the lengths of its messages.
//
// A call with a top-k compressor also gets a sparse plan. The sparse plan states whether the ranks send only the k
// elements that the compressor selects, or the whole vector.
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

/// Returns the plan of a call. `top_k`: compressor of the call, or null if the call has none. With a compressor, the
/// result also has a sparse plan. Throws the same errors as the public function choose_plan(), which calls this
/// function.
CallPlan plan_call(const Request&, const Topology&, const TuningParameters&, const TopKCall* top_k = nullptr);

}  // namespace collectives
