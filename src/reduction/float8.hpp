// Conversion of vectors of 8-bit floats to f32 and back, with the rounding that types.hpp defines.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Convert `count` elements of `type`, which is f8e4m3 or f8e5m2, to float (widen) or from float (narrow). The pointers
/// to float must be aligned.
void widen_float8(DataType type, const std::byte* from, float* to, std::size_t count) noexcept;
void narrow_float8(DataType type, const float* from, std::byte* to, std::size_t count) noexcept;

}  // namespace collectives
