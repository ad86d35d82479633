// Capabilities of NCCL and of the library's own kernels on device memory. Plans are chosen by these predicates and
// limits.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// Maximum number of vectors that one kernel launch reads.
inline constexpr std::size_t kKernelSources = 256;

/// Returns why NCCL's own reduction does not give the result that ReduceOp promises; empty if it does. NCCL gives that
/// result for sums, products and pre-scaled sums of f32, f64 and integers. It also gives it for averages of f32 and
/// f64, and for min and max of integers. A deterministic call requires integers.
std::string why_no_native_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic);

/// Returns why NCCL cannot perform a reduction over `ranks` ranks at all; empty if it can.
std::string why_no_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic, int ranks);

}  // namespace collectives
