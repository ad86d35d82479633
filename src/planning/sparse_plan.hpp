// Plan of a sparse all-reduce: whether it pays, and its form. A pure function, equal on every rank.
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
  bool sparse = false;  ///< selected elements are sent; otherwise the whole vector, by the dense plan
  /// Whether the ranks of a host add first, in a sparse plan. Each of them then selects from its own slice of the sum.
  bool in_hosts = false;
  SparseForm form = SparseForm::gathered;
  int members = 1;  ///< number of members that exchange their selections: hosts, or ranks
  int slices = 1;   ///< slices of the tensor, each with a share of k; more than one only if in_hosts is set
  std::size_t n = 0, k = 0;
  DataType values = DataType::f32;
  std::string reason;
  double microseconds = 0;

  /// Returns the format of slice `s`.
  SparseFormat format(int s) const { return {part({0, n}, slices, s).count, part({0, k}, slices, s).count, values}; }
  /// Returns the slice of local rank `local` if in_hosts is set. There may be fewer slices than ranks.
  Range slice(int local) const { return local < slices ? part({0, n}, slices, local) : Range{}; }
};

/// Returns the plan for selecting `k` of request.count elements by `options`. `dense` is the plan of the same call
/// without compression, or with request.codec.
SparsePlan plan_sparse(const Request&, std::size_t k, const TopKOptions& options, const Plan& dense, const Topology&,
                       const TuningParameters&);

}  // namespace collectives
