// Tests of the 8-bit floats on all 256 values, compared with a table that follows from the definition of each format.
#include "collectives/float8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace collectives {
namespace {

/// Format by its definition: kFraction bits of fraction, the bias of the exponent, the bits of the greatest finite
/// magnitude, and whether there are infinities.
template <class T, int kFraction, int kBias, unsigned kGreatest, bool kHasInfinity>
struct Definition {
  using Type = T;
  static constexpr unsigned kMost = kGreatest;
  static constexpr bool kInfinite = kHasInfinity;
  /// Returns the value of finite bits without a sign.
  static double value(unsigned magnitude) {
    const int exponent = static_cast<int>(magnitude >> kFraction);
    const int fraction = static_cast<int>(magnitude & ((1u << kFraction) - 1));
    if (exponent == 0) return std::ldexp(fraction, 1 - kBias - kFraction);
    return std::ldexp(fraction + (1 << kFraction), exponent - kBias - kFraction);
  }
  /// Returns the bits of the finite value nearest to `number`, the even one in a tie. `number` is not NaN.
  static unsigned nearest(float number) {
    const unsigned sign = std::signbit(number) ? 0x80u : 0u;
    const double wanted = std::abs(static_cast<double>(number));
    if (kHasInfinity && std::isinf(number)) return sign | (kGreatest + 1);
    unsigned best = kGreatest;
    if (wanted < value(kGreatest)) {
      best = 0;
      while (value(best + 1) <= wanted) ++best;
      const double down = wanted - value(best), up = value(best + 1) - wanted;
      if (up < down || (up == down && best % 2 == 1)) ++best;
    }
    return sign | best;
  }
};
using E4M3 = Definition<float8_e4m3, 3, 7, 0x7e, false>;
using E5M2 = Definition<float8_e5m2, 2, 15, 0x7b, true>;

template <class D>
class Float8Value : public ::testing::Test {};
using Definitions = ::testing::Types<E4M3, E5M2>;
struct DefinitionName {
  template <class D>
  static std::string GetName(int) {
    return D::kInfinite ? "e5m2" : "e4m3";
  }
};
TYPED_TEST_SUITE(Float8Value, Definitions, DefinitionName);

template <class D>
typename D::Type of_bits(unsigned bits) {
  typename D::Type value;
  value.bits = static_cast<std::uint8_t>(bits);
  return value;
}

TYPED_TEST(Float8Value, EveryBitPatternDecodesToItsValue) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float decoded = static_cast<float>(of_bits<TypeParam>(bits));
    const unsigned magnitude = bits & 0x7fu;
    EXPECT_EQ(std::signbit(decoded), bits >= 0x80) << bits;
    if (magnitude <= TypeParam::kMost) {
      EXPECT_EQ(std::abs(static_cast<double>(decoded)), TypeParam::value(magnitude)) << bits;
    } else if (TypeParam::kInfinite && magnitude == TypeParam::kMost + 1) {
      EXPECT_TRUE(std::isinf(decoded)) << bits;
    } else {
      EXPECT_TRUE(std::isnan(decoded)) << bits;
    }
  }
  EXPECT_EQ(TypeParam::value(TypeParam::kMost), TypeParam::kInfinite ? 57344 : 448);
}

TYPED_TEST(Float8Value, DecodingThenEncodingIsTheIdentity) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const bool quiets = TypeParam::kInfinite && (bits & 0x7fu) > TypeParam::kMost + 1;
    EXPECT_EQ(typename TypeParam::Type(static_cast<float>(of_bits<TypeParam>(bits))).bits, quiets ? bits | 2u : bits);
  }
}

TYPED_TEST(Float8Value, EncodingRoundsToNearestEvenAtEveryBoundary) {
  const auto check = [](float number) {
    for (const float one : {number, -number})
      ASSERT_EQ(typename TypeParam::Type(one).bits, TypeParam::nearest(one)) << std::hexfloat << one;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (unsigned magnitude = 0; magnitude < TypeParam::kMost; ++magnitude) {
    const auto low = static_cast<float>(TypeParam::value(magnitude));
    const auto middle = static_cast<float>((TypeParam::value(magnitude) + TypeParam::value(magnitude + 1)) / 2);
    for (const float number :
         {low, std::nextafter(low, infinity), std::nextafter(middle, 0.0f), middle, std::nextafter(middle, infinity)})
      check(number);
  }
  for (const float number : {448.0f, 464.0f, 479.9f, 480.0f, 1e3f, 57344.0f, 61440.0f, 65536.0f, 1e30f, 0x1p-149f,
                             0x1p-126f, std::numeric_limits<float>::max(), infinity})
    check(number);
}

TYPED_TEST(Float8Value, EncodingRoundsRandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    // Exponents around those of the format in every second number, and any bits otherwise.
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 2 == 0) bits = (bits & 0x807fffffu) | (100 + bits / 3 % 50) << 23;
    const auto number = std::bit_cast<float>(bits);
    if (std::isnan(number)) continue;
    ASSERT_EQ(typename TypeParam::Type(number).bits, TypeParam::nearest(number)) << std::hexfloat << number;
  }
}

TYPED_TEST(Float8Value, NanStaysNanAndKeepsItsSign) {
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto word = static_cast<std::uint32_t>(random()) | 0x7f800001u;
    const typename TypeParam::Type encoded(std::bit_cast<float>(word));
    ASSERT_TRUE(std::isnan(static_cast<float>(encoded))) << std::hex << word;
    ASSERT_EQ(encoded.bits >> 7, static_cast<int>(word >> 31));
  }
}

}  // namespace
}  // namespace collectives
