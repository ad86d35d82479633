// Functions that encode and decode values by the library's codecs: bf16, f16, int8, mx_f8e4m3 and mx_f8e5m2. A codec
// converts f32 values to fewer bytes for messages, and back.
//
// Each function is compiled several times, once for each vector instruction set, such as AVX2. At run time, the library
// uses the version for the best instruction set of this CPU. All versions return the same bits. They do so even if the
// program has set the processor to replace denormals (values close to 0) by 0.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.hpp"

namespace collectives {

/// Minimum size in bytes from which bf16 and f16 use streaming stores, which bypass the caches. The size is that of
/// input and output together. 16 MiB exceeds a core's share of most last-level caches. Messages are far shorter, and
/// should stay in the cache.
inline constexpr std::size_t kPastCaches = 16 << 20;

/// Encodes f32 values as f16 or bf16 (`type`). The header types.hpp defines the rounding.
void encode_half_floats(DataType type, std::span<const float> values, std::byte* wire) noexcept;
void decode_half_floats(DataType type, const std::byte* wire, std::span<float> values) noexcept;

/// Number of elements in a block of the codec int8. Each block has one scale, by which each of its bytes is multiplied.
/// The last block may be shorter.
inline constexpr std::size_t kScaledBlock = 256;
/// Returns the size in bytes of `count` elements in int8. A block has a scale of type f32 and a signed byte per
/// element.
constexpr std::size_t scaled_bytes(std::size_t count) noexcept {
  return count + (count + kScaledBlock - 1) / kScaledBlock * sizeof(float);
}
void encode_scaled(std::span<const float> values, std::byte* wire) noexcept;
void decode_scaled(const std::byte* wire, std::span<float> values) noexcept;

/// Number of elements in a block of the codecs mx_f8e4m3 and mx_f8e5m2. The last block may be shorter.
inline constexpr std::size_t kMxBlock = 32;
/// Returns the size in bytes of `count` elements. A block has a scale of one byte and a byte per element.
constexpr std::size_t mx_bytes(std::size_t count) noexcept { return count + (count + kMxBlock - 1) / kMxBlock; }
/// Convert f32 to blocks of `elements`, f8e4m3 or f8e5m2, and back.
void encode_mx(DataType elements, std::span<const float> values, std::byte* wire) noexcept;
void decode_mx(DataType elements, const std::byte* wire, std::span<float> values) noexcept;

}  // namespace collectives
