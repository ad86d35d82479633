// 8-bit floats of the Open Compute Project (OCP): float8_e4m3 and float8_e5m2. Each class defines only conversions from
// and to f32. The conversion from f32 rounds to nearest even by integer arithmetic, so every machine computes the same
// bits. Denormals are kept, and NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace collectives {
namespace detail {

/// Rounds the magnitude of an f32, given by its bits, to a float with `kFraction` bits of fraction and the exponent
/// bias `kBias`. Returns the bits of that float, at most `greatest`. Requires a number, not NaN.
template <int kFraction, std::uint32_t kBias>
constexpr std::uint32_t round_magnitude(std::uint32_t magnitude, std::uint32_t greatest) noexcept {
  constexpr std::uint32_t kLost = 23 - kFraction, kLeastNormal = (128 - kBias) << 23;
  if (magnitude >= kLeastNormal) {
    const std::uint32_t shifted = magnitude - ((127 - kBias) << 23);
    const std::uint32_t rounded = (shifted + (1u << (kLost - 1)) - 1 + ((shifted >> kLost) & 1u)) >> kLost;
    return rounded < greatest ? rounded : greatest;
  }
  const std::uint32_t shift = kLost + 1 + ((127 - kBias) - (magnitude >> 23));  // bits that a denormal loses
  if (shift > 25) return 0;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t rest = significand & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
  const std::uint32_t kept = significand >> shift;
  return kept + (rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u);
}

}  // namespace detail

/// 8-bit float with 4 bits of exponent and 3 of fraction. Its greatest magnitude is 448. It has no infinity, and one
/// NaN per sign. The conversion from f32 turns infinities and magnitudes above 448 into 448.
struct float8_e4m3 {
  std::uint8_t bits = 0;

  constexpr float8_e4m3() = default;
  constexpr explicit float8_e4m3(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 24) & 0x80u, magnitude = word & 0x7fffffffu;
    const std::uint32_t rounded = magnitude > 0x7f800000u ? 0x7fu : detail::round_magnitude<3, 7>(magnitude, 0x7eu);
    bits = static_cast<std::uint8_t>(sign | rounded);
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
    const float denormal = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
  }
};

/// 8-bit float with 5 bits of exponent and 2 of fraction: the upper byte of an f16. Its greatest magnitude is 57344.
/// The conversion from f32 keeps infinities, and turns larger finite magnitudes into 57344.
struct float8_e5m2 {
  std::uint8_t bits = 0;

  constexpr float8_e5m2() = default;
  constexpr explicit float8_e5m2(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 24) & 0x80u, magnitude = word & 0x7fffffffu;
    std::uint32_t rounded = 0x7cu;
    if (magnitude > 0x7f800000u) {
      rounded = 0x7eu | ((magnitude >> 21) & 3u);  // NaN keeps the upper bits of its payload and becomes quiet
    } else if (magnitude < 0x7f800000u) {
      rounded = detail::round_magnitude<2, 15>(magnitude, 0x7bu);
    }
    bits = static_cast<std::uint8_t>(sign | rounded);
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude >= 0x7cu) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 3u) << 21));
    if (magnitude >= 4) return std::bit_cast<float>(sign | ((magnitude << 21) + 0x38000000u));
    const float denormal = static_cast<float>(magnitude) * 0x1p-16f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
  }
};

}  // namespace collectives
