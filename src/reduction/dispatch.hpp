// The families of loops from which reduction.cpp chooses. Each family is a file of its own, compiled once per
// instruction set. It returns the loop for this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "reduction/reduction.hpp"

// Instruction sets that are not used. SSSE3 alone is almost extinct. Vectors of SVE have no size that the compiler
// knows and cannot be elements of arrays. Must be defined before any header of Highway is included.
//
// Builds with sanitizers have one instruction set of vectors beside the one without. The loops are the same source for
// all sets, and the sanitizers make them take minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

namespace collectives {

/// Bytes of a vector from which it pays to begin at a cache line.
inline constexpr std::size_t kLongVector = 4096;
/// Bytes of a cache line.
inline constexpr std::size_t kLine = 64;
/// Returns the number of bytes from `data` to the next cache line.
inline std::size_t to_next_line(const std::byte* data) noexcept {
  return -reinterpret_cast<std::uintptr_t>(data) % kLine;
}

/// Returns the loop of sum, average, product or pre_scaled_sum: of f32 and f64, and of f16 and bf16.
FoldLoop loop_of_floats(ReduceOp::Kind kind, DataType type) noexcept;
FoldLoop loop_of_half_floats(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of sum, average or product.
FoldLoop loop_of_integers(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of min or max, for every type.
FoldLoop loop_of_min_max(ReduceOp::Kind kind, DataType type) noexcept;

}  // namespace collectives
