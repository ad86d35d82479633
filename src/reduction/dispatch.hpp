// The families of loops that reduction.cpp chooses from. Each is compiled once per instruction set, in a file of its
// own, and gives the one for what this processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "reduction/reduction.hpp"

// Instruction sets to do without: one that is all but extinct, and those whose vectors have a size that the compiler
// does not know, which cannot stand in arrays. Before anything of Highway is included.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

namespace collectives {

/// Bytes from which it pays to begin where a line does.
inline constexpr std::size_t kLongVector = 4096;
/// Bytes that memory moves at once.
inline constexpr std::size_t kLine = 64;
/// Bytes from `data` to where the next line begins.
inline std::size_t to_next_line(const std::byte* data) noexcept {
  return -reinterpret_cast<std::uintptr_t>(data) % kLine;
}

/// sum, average, product and pre_scaled_sum of f32 and f64, and of f16 and bf16.
FoldLoop loop_of_floats(ReduceOp::Kind kind, DataType type) noexcept;
FoldLoop loop_of_half_floats(ReduceOp::Kind kind, DataType type) noexcept;
/// sum, average and product.
FoldLoop loop_of_integers(ReduceOp::Kind kind, DataType type) noexcept;
/// min and max of every type.
FoldLoop loop_of_min_max(ReduceOp::Kind kind, DataType type) noexcept;

}  // namespace collectives
