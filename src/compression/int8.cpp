// Codec int8: encodes f32 values as signed bytes, in blocks of 256 elements with one scale each.
//
// The encoded form holds one block after the other: the scale as f32 in four bytes, then a signed byte q per element.
// The value of an element is q * scale. The last block may be shorter.
//
// Every codec must satisfy encode(decode(wire)) == wire, bit by bit, for its encoded form `wire`. The choice of the
// scale ensures this equality:
//
// - The scale is the greatest magnitude divided by 127, rounded up to 17 significant bits. A product of the magnitude
//   of a byte (7 bits) and the scale (17 bits) is therefore exact in f32.
// - Rounding up increases the scale by at most 2^-16 of itself. The greatest magnitude divided by the scale therefore
//   differs from 127 by much less than 0.5. Its byte is 127 or -127.
// - The greatest decoded magnitude is exactly 127 times the scale. The next encoding divides this magnitude by 127
//   and finds the same scale.
//
// Very large and very small values need other scales.
//
// Large values: 127 times the scale must be finite. If the scale would be greater, the encoder uses the greatest scale
// for which this product is finite. This scale is too small by at most 2^-20 of itself. The byte of the greatest
// magnitude is still 127 or -127.
//
// Small values: a scale other than 0 is at least 2^-125. The magnitude of a denormal value is less than half of 2^-125.
// Its byte is therefore 0, whether or not the processor replaces denormals by 0. No decoded value is denormal. A block
// with the scale 2^-125 may have no byte of magnitude 127. The next encoding of its decoded values uses the scale
// 2^-125 again. If all bytes of a block are 0, its scale is 0.
//
// A NaN or infinity in a block makes the scale NaN, so all decoded elements of the block are NaN. The bytes of the
// block are 0, as in a block of zeros.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "compression/codec_kernels.hpp"
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/int8.cpp"
#include <hwy/foreach_target.h>

#include "reduction/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
using Word = hn::RebindToUnsigned<Float>;
using Integer = hn::RebindToSigned<Float>;
inline constexpr std::size_t kAtOnce = 4;  // Number of vectors per iteration.

inline constexpr std::uint32_t kQuietNaN = 0x7fc00000u, kInfinity = 0x7f800000u;
inline constexpr float kLeastScale = 0x1p-125f, kGreatestScale = 0x1.0204p121f;
static_assert(std::bit_cast<std::uint32_t>(kGreatestScale) % 128 == 0 && 127.0 * kGreatestScale <= 0x1.fffffep127);

/// Returns the bits of the greatest magnitude. Their order as integers is that of the magnitudes; NaN exceeds infinity,
/// and infinity exceeds all finite values.
HWY_INLINE std::uint32_t greatest_magnitude(const float* values) {
  const Integer d;
  const auto magnitude = hn::Set(d, 0x7fffffff);
  hn::Vec<Integer> greatest[kAtOnce];
  for (auto& vector : greatest) vector = hn::Zero(d);
  for (std::size_t i = 0; i < kScaledBlock; i += kAtOnce * hn::MaxLanes(d)) {
    for (std::size_t v = 0; v < kAtOnce; ++v) {
      const auto value = hn::BitCast(d, hn::LoadU(Float(), values + i + v * hn::MaxLanes(d)));
      greatest[v] = hn::Max(greatest[v], hn::And(value, magnitude));
    }
  }
  const auto all = hn::Max(hn::Max(greatest[0], greatest[1]), hn::Max(greatest[2], greatest[3]));
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, all)));
}

/// Returns the bits of the scale. They are 0 or NaN if all bytes are 0.
HWY_INLINE std::uint32_t scale_of(std::uint32_t greatest) {
  if (greatest >= kInfinity) return kQuietNaN;
  if (greatest <= std::bit_cast<std::uint32_t>(kLeastScale / 2)) return 0;
  const auto exact = std::bit_cast<std::uint32_t>(std::bit_cast<float>(greatest) / 127);
  const auto rounded = (exact + 127) & ~std::uint32_t{127};  // Rounds 24 bits up to 17.
  return std::clamp(rounded, std::bit_cast<std::uint32_t>(kLeastScale), std::bit_cast<std::uint32_t>(kGreatestScale));
}

HWY_INLINE void encode_block(const float* values, std::byte* wire) {
  const std::uint32_t scale = scale_of(greatest_magnitude(values));
  std::memcpy(wire, &scale, sizeof(scale));
  wire += sizeof(scale);
  if (scale == 0 || scale == kQuietNaN) return static_cast<void>(std::memset(wire, 0, kScaledBlock));
  const Float d;
  const hn::Rebind<std::uint8_t, Float> bytes;
  const auto inverse = hn::Set(d, 1 / std::bit_cast<float>(scale));
  // Floats of this size have a distance of 1. The addition therefore rounds to an integer. The last byte of the sum
  // is q.
  const auto whole = hn::Set(d, 0x1.8p23f);
  for (std::size_t i = 0; i < kScaledBlock; i += hn::MaxLanes(d)) {
    const auto q = hn::Add(hn::Mul(hn::LoadU(d, values + i), inverse), whole);
    store(bytes, hn::TruncateTo(bytes, hn::BitCast(Word(), q)), wire + i);
  }
}

HWY_INLINE void decode_block(const std::byte* wire, float* values) {
  float scale;
  std::memcpy(&scale, wire, sizeof(scale));
  wire += sizeof(scale);
  const Float d;
  const hn::Rebind<std::int8_t, Float> bytes;
  const auto factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < kScaledBlock; i += hn::MaxLanes(d)) {
    const auto q = hn::ConvertTo(d, hn::PromoteTo(Integer(), load(bytes, wire + i)));
    hn::StoreU(hn::Mul(q, factor), d, values + i);
  }
}

/// Encodes all blocks. A shorter block is encoded as if it were padded with zeros.
void quantise(std::span<const float> values, std::byte* wire) {
  for (; values.size() >= kScaledBlock; values = values.subspan(kScaledBlock), wire += scaled_bytes(kScaledBlock)) {
    encode_block(values.data(), wire);
  }
  if (values.empty()) return;
  float block[kScaledBlock] = {};
  std::byte coded[scaled_bytes(kScaledBlock)];
  std::memcpy(block, values.data(), values.size_bytes());
  encode_block(block, coded);
  std::memcpy(wire, coded, scaled_bytes(values.size()));
}

void restore(const std::byte* wire, std::span<float> values) {
  for (; values.size() >= kScaledBlock; values = values.subspan(kScaledBlock), wire += scaled_bytes(kScaledBlock)) {
    decode_block(wire, values.data());
  }
  if (values.empty()) return;
  float block[kScaledBlock];
  std::byte coded[scaled_bytes(kScaledBlock)] = {};
  std::memcpy(coded, wire, scaled_bytes(values.size()));
  decode_block(coded, block);
  std::memcpy(values.data(), block, values.size_bytes());
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(quantise);
HWY_EXPORT(restore);

void encode_scaled(std::span<const float> values, std::byte* wire) noexcept {
  HWY_DYNAMIC_DISPATCH(quantise)(values, wire);
}
void decode_scaled(const std::byte* wire, std::span<float> values) noexcept {
  HWY_DYNAMIC_DISPATCH(restore)(wire, values);
}

}  // namespace collectives
#endif
