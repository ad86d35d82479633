// Encoding and decoding of the library's codecs. The functions are compiled once per instruction set, as the reductions
// are. All instruction sets give the same bits, even if the processor flushes denormals.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.hpp"

namespace collectives {

/// Total size of input and output, in bytes, from which results are written with streaming stores. It exceeds one
/// core's share of most last-level caches, and by far the payload of a frame.
inline constexpr std::size_t kPastCaches = 16 << 20;

/// Convert f32 to f16 or bf16, or back. The rounding is that of types.hpp.
void encode_half_floats(DataType type, std::span<const float> values, std::byte* wire) noexcept;
void decode_half_floats(DataType type, const std::byte* wire, std::span<float> values) noexcept;

/// Number of elements that share a scale in int8. The last block may have fewer.
inline constexpr std::size_t kScaledBlock = 256;
/// Returns the encoded size. A block has a scale of type f32 and a signed byte per element.
constexpr std::size_t scaled_bytes(std::size_t count) noexcept {
  return count + (count + kScaledBlock - 1) / kScaledBlock * sizeof(float);
}
void encode_scaled(std::span<const float> values, std::byte* wire) noexcept;
void decode_scaled(const std::byte* wire, std::span<float> values) noexcept;

}  // namespace collectives
