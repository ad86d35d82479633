// What NCCL and the library's own kernels can do on device memory: predicates and limits on which plans are chosen.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// Number of vectors that one kernel launch reads.
inline constexpr std::size_t kKernelSources = 256;

/// Returns why NCCL's own reduction does not give the result that ReduceOp promises; empty if it does. NCCL is used for
/// sums, products and pre-scaled sums of f32, f64 and integers, averages of f32 and f64, min and max of integers.
std::string why_not_summed_by_nccl(const ReduceOp& op, DataType type, bool deterministic);

/// Returns why NCCL cannot perform a reduction over `ranks` ranks at all; empty if it can.
std::string why_not_by_nccl(const ReduceOp& op, DataType type, bool deterministic, int ranks);

}  // namespace collectives
