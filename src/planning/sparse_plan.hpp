// Whether a sparse all-reduce pays, and how it goes: a pure function, equal on every rank.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/plan.hpp"
#include "collectives/top_k.hpp"
#include "compression/sparse.hpp"
#include "steps/parts.hpp"

namespace collectives {

struct SparsePlan {
  bool sparse = false;  ///< or everything is sent, as the dense plan says
  /// Where it is sparse: the ranks of a host add first and choose from the sum, each from a slice of its own.
  bool in_hosts = false;
  SparseForm form = SparseForm::gathered;
  int members = 1;  ///< who exchange what they have chosen: hosts, or ranks
  int slices = 1;   ///< of the tensor, each with a share of k; more than one only in_hosts
  std::size_t n = 0, k = 0;
  DataType values = DataType::f32;
  std::string reason;
  double microseconds = 0;

  /// Of slice `s`.
  SparseFormat format(int s) const { return {part({0, n}, slices, s).count, part({0, k}, slices, s).count, values}; }
  /// Of the local rank `local`, in_hosts; there may be fewer slices than ranks.
  Range slice(int local) const { return local < slices ? part({0, n}, slices, local) : Range{}; }
};

/// `k` of request.count elements, as `options` say; `dense`: what the same call would be without compression, or with
/// request.codec.
SparsePlan plan_sparse(const Request&, std::size_t k, const TopKOptions& options, const Plan& dense, const Topology&,
                       const Tuning&);

/// Why GPUs do not choose from their own memory, where ranks of a host add first or not; empty where they do.
std::string why_not_chosen_on_gpu(bool in_hosts, const TopKOptions& options, const Topology& topology);

}  // namespace collectives
