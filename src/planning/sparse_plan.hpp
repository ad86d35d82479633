// Plan of an all-reduce with top-k. Top-k selects the k elements of greatest magnitude. The plan states whether the
// ranks send only these elements, or the whole vector. It also states how the ranks exchange selected elements. All
// ranks compute the same plan, because the plan depends only on values that are equal on all ranks.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/plan.hpp"
#include "collectives/top_k.hpp"
#include "compression/sparse.hpp"
#include "core/tuning_parameters.hpp"
#include "steps/parts.hpp"

namespace collectives {

struct SparsePlan {
  bool sparse = false;  ///< whether selected elements are sent; otherwise the whole vector is sent (dense plan)
  /// Whether the ranks of each host first add their vectors. If so, each rank then selects elements from its own slice,
  /// a range of the sum.
  bool in_hosts = false;
  SparseForm form = SparseForm::gathered;
  int members = 1;  ///< number of members that exchange selected elements: hosts if in_hosts is set, else ranks
  int slices = 1;   ///< number of slices; more than one only if in_hosts is set
  std::size_t n = 0, k = 0;  ///< numbers of elements of the vector, and of those that a member selects
  DataType values = DataType::f32;
  std::string reason;
  double microseconds = 0;

  /// Returns the format of the elements that are selected from slice `s`.
  SparseFormat format(int s) const { return {part({0, n}, slices, s).count, part({0, k}, slices, s).count, values}; }
  /// Returns the slice of local rank `local` if in_hosts is set. There may be fewer slices than ranks.
  Range slice(int local) const { return local < slices ? part({0, n}, slices, local) : Range{}; }
};

/// Returns the plan for selecting `k` of request.count elements by `options`. `dense`: plan of the same call without
/// top-k.
SparsePlan plan_sparse(const Request&, std::size_t k, const TopKOptions& options, const Plan& dense, const Topology&,
                       const TuningParameters&);

}  // namespace collectives
