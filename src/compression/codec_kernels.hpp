// What the library's codecs do to spans, compiled once per instruction set as the reductions are. The bits are the same
// from all, and where the processor flushes denormals.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.hpp"

namespace collectives {

/// Bytes, read and written, from which results are stored past the caches: more than is one core's part of most
/// last-level caches, and far more than travels in one frame.
inline constexpr std::size_t kPastCaches = 16 << 20;

/// f32 from and to f16 or bf16, rounded as in types.hpp.
void encode_half_floats(DataType type, std::span<const float> values, std::byte* wire) noexcept;
void decode_half_floats(DataType type, const std::byte* wire, std::span<float> values) noexcept;

/// Elements that share a scale in int8; the last block may have fewer.
inline constexpr std::size_t kScaledBlock = 256;
/// A block on the wire: the scale, f32, then a signed byte per element.
constexpr std::size_t scaled_bytes(std::size_t count) noexcept {
  return count + (count + kScaledBlock - 1) / kScaledBlock * sizeof(float);
}
void encode_scaled(std::span<const float> values, std::byte* wire) noexcept;
void decode_scaled(const std::byte* wire, std::span<float> values) noexcept;

}  // namespace collectives
