// int8: blocks of 256 elements that share a scale. On the wire stands block after block: the scale, four bytes as f32
// has them in memory, then a signed byte q for each element, which means q * scale. A shorter last block likewise.
//
// That encode(decode(wire)) be wire, bit by bit, is a matter of the scale. It is the greatest magnitude over 127,
// rounded up to 17 significant bits. So a byte times the scale is exact in f32, 17 bits and 7. The greatest magnitude
// makes the byte 127 (the scale is greater than it should be by 2^-16 of itself at most, which is far from a half in
// 127), so what is decoded has 127 times the scale as its greatest magnitude, exactly, and over 127 that is the scale
// again. Two ends need care:
//
//   great   127 times the scale must be finite. Where rounding up goes beyond, the greatest scale for which it is so
//           takes its place; it is less than it should be by 2^-20 of itself, and the byte still 127.
//   small   the scale is 2^-125 at least. So what is denormal is less than half of it, 0 whether or not the processor
//           takes denormals for 0, and nothing that is decoded is denormal. The greatest byte may then be less than
//           127, but the scale comes out as 2^-125 again, if there is a byte that is not 0: hence blocks that hold
//           nothing greater than half the least scale have the scale 0.
//
// NaN or infinity in a block makes the scale NaN and with it all elements; the bytes are 0, as in a block of zeros.
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
inline constexpr std::size_t kAtOnce = 4;  // vectors

inline constexpr std::uint32_t kQuietNaN = 0x7fc00000u, kInfinity = 0x7f800000u;
inline constexpr float kLeastScale = 0x1p-125f, kGreatestScale = 0x1.0204p121f;
static_assert(std::bit_cast<std::uint32_t>(kGreatestScale) % 128 == 0 && 127.0 * kGreatestScale <= 0x1.fffffep127);

/// Bits of the greatest magnitude, which are in the order of the magnitudes: NaN above infinity above all others.
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

/// Bits of the scale: 0 and NaN where all bytes are 0.
HWY_INLINE std::uint32_t scale_of(std::uint32_t greatest) {
  if (greatest >= kInfinity) return kQuietNaN;
  if (greatest <= std::bit_cast<std::uint32_t>(kLeastScale / 2)) return 0;
  const auto exact = std::bit_cast<std::uint32_t>(std::bit_cast<float>(greatest) / 127);
  const auto rounded = (exact + 127) & ~std::uint32_t{127};  // 24 bits to 17
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
  // Whole numbers of this size are neighbours among floats: the addition rounds, and the last byte is q.
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

/// A block that is shorter is coded as if zeros followed.
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
