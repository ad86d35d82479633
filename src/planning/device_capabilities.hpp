// Functions that return why NCCL, NVIDIA's library for collectives between GPUs, cannot perform a reduction. The plan
// of a call on GPU memory depends on the results of these functions.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// Maximum number of vectors that one launch of a reduction kernel reads, one per rank.
inline constexpr std::size_t kKernelSources = 256;

/// Returns why NCCL's own reduction does not give the result that ReduceOp promises. Returns an empty text if NCCL
/// gives this result. NCCL does so for sums and products of f32, f64 and integers of 8, 32 and 64 bits. NCCL does so
/// for min and max of these integers. NCCL also does so for averages and pre-scaled sums of f32 and f64, and for sums
/// of complex numbers. If `deterministic` is true, NCCL does so for these integers only.
std::string why_no_native_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic);

/// Returns why backend `nccl` cannot perform a reduction over `ranks` ranks. Returns an empty text if the backend can.
/// If NCCL's own reduction does not give the promised result, NCCL moves the data and a kernel reduces.
std::string why_no_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic, int ranks);

}  // namespace collectives
