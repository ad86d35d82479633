// Codecs mx_f8e4m3 and mx_f8e5m2, which encode f32 values in the MX format of the Open Compute Project.
//
// A block has 32 elements. The last block may be shorter. An encoded block consists of one byte for the scale, and one
// 8-bit float per element. The scale is a power of two, whose byte holds the exponent plus 127 (format E8M0). The value
// of an element is the scale times the 8-bit float.
//
// The encoder chooses the scale by the greatest magnitude of the block. In a block of the first kind, the greatest
// magnitude divided by the scale has the highest exponent of the 8-bit float. If this quotient would round to more than
// the greatest 8-bit float, the block is of the second kind. Its scale is twice as large. No element overflows, and
// each element is rounded to the nearest 8-bit float.
//
// Every codec must satisfy encode(decode(wire)) == wire, bit by bit, for its encoded form `wire`. This holds because
// the second encoding finds the same scale:
//
// - First kind: the rounded quotient is at most the greatest 8-bit float, and keeps its exponent.
// - Second kind in f8e4m3: the significand is above 1.8125, so it becomes 1.875 or 2. The next encoding finds the
//   second kind again, or the next exponent. Both lead to the same scale.
// - Second kind in f8e5m2: the significand is at least 1.875. It becomes 2, because a tie is rounded to even.
//
// Very large and very small values need other scales.
//
// Large values: a product of the scale and an element must be finite. The greatest scale is therefore 2^127 divided by
// the greatest power of two of the 8-bit float. Magnitudes that would need a greater scale become 1.75 * 2^127.
//
// Small values: with the smallest scale, the smallest value of an element is 2^-125. A denormal value is less than half
// of 2^-125. It therefore becomes 0, whether or not the processor replaces denormals by 0. No decoded value is
// denormal.
//
// A NaN or infinity in a block makes the scale 255, which is NaN, so all decoded elements of the block are NaN. The
// elements of that block are 0.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "compression/codec_kernels.hpp"
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/mx.cpp"
#include <hwy/foreach_target.h>

#include "reduction/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

inline constexpr std::uint32_t kNanScale = 255;
/// Tag of as many 8-bit floats as there are f32 in a vector.
using MxElements = hn::Rebind<std::uint8_t, hn::ScalableTag<float>>;

/// Limits of the scale for a format, plus 127. kHighest is the highest exponent of the format.
template <class Format>
struct MxLimits {
  static constexpr std::uint32_t kHighest = Format::kHighestExponent, kMost = 254 - kHighest;
  static constexpr std::uint32_t kLeast = 127 - 125 + Format::kLowestExponent;
  /// Fraction of the least f32 that rounds to more than the greatest number. Adding kCarry to it carries into the
  /// exponent.
  static constexpr std::uint32_t kTooGreat =
      Format::kGreatestFraction + (1u << (Format::kLost - 1)) + (Format::kGreatestIsOdd ? 0 : 1);
  static constexpr std::uint32_t kCarry = (1u << 23) - kTooGreat;
};

/// Returns the bits of the greatest magnitude of a block; see greatest_magnitude() of int8.cpp.
HWY_INLINE std::uint32_t greatest_of_block(const float* values) {
  using D = hn::ScalableTag<std::int32_t>;
  const D d;
  const hn::Rebind<float, D> df;
  auto greatest = hn::Zero(d);
  for (std::size_t i = 0; i < kMxBlock; i += hn::MaxLanes(d)) {
    const auto magnitude = hn::And(hn::BitCast(d, hn::LoadU(df, values + i)), hn::Set(d, 0x7fffffff));
    greatest = hn::Max(greatest, magnitude);
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, greatest)));
}

template <class Format>
HWY_INLINE std::uint32_t mx_scale_of(std::uint32_t greatest) {
  using Limits = MxLimits<Format>;
  if (greatest >= 0x7f800000u) return kNanScale;
  const std::uint32_t exponent = (greatest + Limits::kCarry) >> 23;
  return std::clamp(exponent, Limits::kLeast + Limits::kHighest, Limits::kMost + Limits::kHighest) - Limits::kHighest;
}

template <class Format>
HWY_INLINE void encode_mx_block(const float* values, std::byte* wire) {
  const std::uint32_t scale = mx_scale_of<Format>(greatest_of_block(values));
  *wire++ = static_cast<std::byte>(scale);
  if (scale == kNanScale) return static_cast<void>(std::memset(wire, 0, kMxBlock));
  const MxElements d;
  const Floats<MxElements> df;
  const auto inverse = hn::Set(df, std::bit_cast<float>((254 - scale) << 23));
  for (std::size_t i = 0; i < kMxBlock; i += hn::MaxLanes(d))
    store(d, Format::narrow(d, hn::Mul(hn::LoadU(df, values + i), inverse)), wire + i);
}

template <class Format>
HWY_INLINE void decode_mx_block(const std::byte* wire, float* values) {
  const auto scale = static_cast<std::uint32_t>(*wire++);
  const MxElements d;
  const Floats<MxElements> df;
  const std::uint32_t power = scale == kNanScale ? 0x7fc00000u : scale == 0 ? 0x00400000u : scale << 23;
  const auto factor = hn::Set(df, std::bit_cast<float>(power));
  for (std::size_t i = 0; i < kMxBlock; i += hn::MaxLanes(d))
    hn::StoreU(hn::Mul(Format::widen(d, load(d, wire + i)), factor), df, values + i);
}

/// Encodes all blocks. A shorter block is encoded as if it were padded with zeros.
template <class Format>
void encode_mx_blocks(std::span<const float> values, std::byte* wire) {
  for (; values.size() >= kMxBlock; values = values.subspan(kMxBlock), wire += mx_bytes(kMxBlock))
    encode_mx_block<Format>(values.data(), wire);
  if (values.empty()) return;
  float block[kMxBlock] = {};
  std::byte coded[mx_bytes(kMxBlock)];
  std::memcpy(block, values.data(), values.size_bytes());
  encode_mx_block<Format>(block, coded);
  std::memcpy(wire, coded, mx_bytes(values.size()));
}

template <class Format>
void decode_mx_blocks(const std::byte* wire, std::span<float> values) {
  for (; values.size() >= kMxBlock; values = values.subspan(kMxBlock), wire += mx_bytes(kMxBlock))
    decode_mx_block<Format>(wire, values.data());
  if (values.empty()) return;
  float block[kMxBlock];
  std::byte coded[mx_bytes(kMxBlock)] = {};
  std::memcpy(coded, wire, mx_bytes(values.size()));
  decode_mx_block<Format>(coded, block);
  std::memcpy(values.data(), block, values.size_bytes());
}

void encode_all_mx(DataType elements, std::span<const float> values, std::byte* wire) {
  if (elements == DataType::f8e4m3) return encode_mx_blocks<Float8E4M3>(values, wire);
  encode_mx_blocks<Float8E5M2>(values, wire);
}
void decode_all_mx(DataType elements, const std::byte* wire, std::span<float> values) {
  if (elements == DataType::f8e4m3) return decode_mx_blocks<Float8E4M3>(wire, values);
  decode_mx_blocks<Float8E5M2>(wire, values);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(encode_all_mx);
HWY_EXPORT(decode_all_mx);

void encode_mx(DataType elements, std::span<const float> values, std::byte* wire) noexcept {
  HWY_DYNAMIC_DISPATCH(encode_all_mx)(elements, values, wire);
}
void decode_mx(DataType elements, const std::byte* wire, std::span<float> values) noexcept {
  HWY_DYNAMIC_DISPATCH(decode_all_mx)(elements, wire, values);
}

}  // namespace collectives
#endif
