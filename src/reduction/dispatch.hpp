// Dispatch: functions that return the loop which reduces elements by a given op and type. The loops are in seven files.
// Six of these files are compiled once per instruction set; single_elements.cpp is compiled only once. The functions
// below return the loop for the instruction set of this CPU. The loop for user ops is in reduction.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "reduction/reduction.hpp"

// Instruction sets for which no loops are compiled. Highway, the library of vector instructions, reads this macro.
// SSSE3 is excluded, because few CPUs have SSSE3 but no newer instruction set. SVE is excluded, because the compiler
// does not know the size of an SVE vector. SVE vectors therefore cannot be elements of arrays. The macro must stand
// before the first include of a header of Highway.
//
// Builds with sanitizers contain loops for two instruction sets only: AVX2 or NEON, and the oldest set of the platform.
// Reason: with sanitizers, the loops of each instruction set take minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

namespace collectives {

/// Minimum length in bytes of a vector for which a loop aligns its accesses to cache lines. For this purpose, the loop
/// first processes the elements before the next cache line separately. For shorter vectors, this takes more time than
/// it saves.
inline constexpr std::size_t kLongVector = 4096;
/// Size of a cache line in bytes.
inline constexpr std::size_t kLine = 64;
/// Returns the number of bytes from `data` to the next cache line.
inline std::size_t to_next_line(const std::byte* data) noexcept {
  return -reinterpret_cast<std::uintptr_t>(data) % kLine;
}

/// Return the loop of sum, average, product or pre_scaled_sum. The first function is for f32 and f64, the second for
/// f16 and bf16.
FoldLoop loop_of_floats(ReduceOp::Kind kind, DataType type) noexcept;
FoldLoop loop_of_half_floats(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of sum, average, product, pre_scaled_sum, min or max for f8e4m3 or f8e5m2.
FoldLoop loop_of_float8(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of sum, average or product for an integer type.
FoldLoop loop_of_integers(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of min or max, for every integer, and for floats of 16 bits or more.
FoldLoop loop_of_min_max(ReduceOp::Kind kind, DataType type) noexcept;
/// Returns the loop of a bitwise or logical op on bytes.
FoldLoop loop_of_bytes(ReduceOp::Kind kind) noexcept;
/// Returns the loop of a product of complex numbers, of min_loc or max_loc, or of a logical op on u16, u32 or u64.
FoldLoop loop_of_single_elements(ReduceOp::Kind kind, DataType type) noexcept;

}  // namespace collectives
