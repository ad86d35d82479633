// Conversion of vectors of 8-bit floats to f32 and back, with the rounding that types.hpp defines.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Convert `count` elements of `type`, f8e4m3 or f8e5m2. Addresses may be unaligned, except those of floats.
void widen_float8(DataType type, const std::byte* from, float* to, std::size_t count) noexcept;
void narrow_float8(DataType type, const float* from, std::byte* to, std::size_t count) noexcept;

}  // namespace collectives
