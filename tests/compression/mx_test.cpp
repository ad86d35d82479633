// Tests of the format and the limits of the codecs mx_f8e4m3 and mx_f8e5m2. An oracle decodes blocks by the definition
// of the MX format. codec_test runs the suites of all codecs on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "collectives/codec.hpp"
#include "support/instruction_sets.hpp"
#include "support/system.hpp"

namespace collectives {
namespace {

using testing::kSanitized;

constexpr std::size_t kBlock = 32;
using Wire = std::vector<std::byte>;

Wire encoded(const Codec& codec, std::span<const float> values) {
  Wire wire(codec.encoded_bytes(values.size()));
  codec.encode(values, wire.data());
  return wire;
}
std::vector<float> decoded(const Codec& codec, const Wire& wire, std::size_t count) {
  std::vector<float> values(count);
  codec.decode(wire.data(), values);
  return values;
}

/// One of the two codecs, with the properties of its elements.
template <class T, int kHighest, int kFraction>
struct Subject {
  using Type = T;
  static constexpr int highest = kHighest;                  ///< highest exponent of an element
  static constexpr int fraction = kFraction;                ///< bits of its fraction
  static constexpr int lowest = kFraction == 3 ? -9 : -16;  ///< exponent of its smallest denormal
  static const Codec& codec() { return kFraction == 3 ? mx_f8e4m3_codec() : mx_f8e5m2_codec(); }
};
template <class S>
class Mx : public ::testing::Test {};
using Subjects = ::testing::Types<Subject<float8_e4m3, 8, 3>, Subject<float8_e5m2, 15, 2>>;
struct SubjectName {
  template <class S>
  static std::string GetName(int) {
    return std::string(S::codec().name());
  }
};
TYPED_TEST_SUITE(Mx, Subjects, SubjectName);

TYPED_TEST(Mx, ABlockIsAnExponentAndElements) {
  std::vector<float> values(40, 1.0f);
  values[0] = -1.5f, values[1] = 0.5f, values[2] = 0.0f, values[3] = -0.0f, values[32] = 6.0f;
  const Wire wire = encoded(TypeParam::codec(), values);
  ASSERT_EQ(wire.size(), 42u);
  EXPECT_EQ(std::to_integer<int>(wire[0]), 127 - TypeParam::highest);
  EXPECT_EQ(std::to_integer<int>(wire[33]), 127 + 2 - TypeParam::highest);
  const auto element = [&](float value) {
    return typename TypeParam::Type(std::ldexp(value, TypeParam::highest)).bits;
  };
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[1]), element(-1.5f));
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[2]), element(0.5f));
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[3]), 0x00);
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[4]), 0x80);
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[34]), element(1.5f));
  EXPECT_EQ(std::to_integer<std::uint8_t>(wire[35]), element(0.25f));
}

TYPED_TEST(Mx, EveryScaleWithEveryElementDecodesToTheirProduct) {
  for (const std::int64_t set : instruction_sets()) {
    use_instruction_set(set);
    for (int scale = 0; scale < 256; ++scale) {
      for (int begin = 0; begin < 256; begin += static_cast<int>(kBlock)) {
        Wire wire{static_cast<std::byte>(scale)};
        for (int i = 0; i < static_cast<int>(kBlock); ++i) wire.push_back(static_cast<std::byte>(begin + i));
        const std::vector<float> values = decoded(TypeParam::codec(), wire, kBlock);
        for (std::size_t i = 0; i < kBlock; ++i) {
          typename TypeParam::Type element;
          element.bits = std::to_integer<std::uint8_t>(wire[1 + i]);
          const auto number = static_cast<double>(static_cast<float>(element));
          const auto expected = static_cast<float>(std::ldexp(number, scale - 127));
          if (scale == 255 || std::isnan(number)) {
            ASSERT_TRUE(std::isnan(values[i])) << scale << ", " << begin + static_cast<int>(i);
          } else {
            ASSERT_EQ(values[i], expected) << scale << ", " << begin + static_cast<int>(i);
          }
        }
      }
    }
  }
  use_instruction_set(0);
}

/// Tries greatest magnitudes of a block from the smallest to the largest f32. Encoding decoded values must give the
/// same bytes again, and each error must be within its bound.
template <class S>
void try_block(std::uint32_t greatest, std::mt19937_64& random) {
  std::vector<float> values(kBlock);
  const auto most = std::bit_cast<float>(greatest);
  for (float& value : values) value = most * std::uniform_real_distribution<float>(-1, 1)(random);
  values[random() % kBlock] = most;
  const Wire wire = encoded(S::codec(), values);
  const std::vector<float> result = decoded(S::codec(), wire, kBlock);
  ASSERT_EQ(encoded(S::codec(), result), wire) << "greatest magnitude of bits " << greatest;
  // Half of the last bit of an element: relative to a normal one, or of the block's denormals. Small blocks have the
  // smallest scale, whose denormals are multiples of 2^-125. The greatest values become 1.75 * 2^127.
  const double unit = std::ldexp(static_cast<double>(most), -(S::highest - S::lowest));
  for (std::size_t i = 0; i < kBlock; ++i) {
    const double value = static_cast<double>(values[i]), size = std::abs(value);
    const double bound =
        size >= 0x1.cp127 ? size - 0x1.cp127 : std::max({std::ldexp(size, -S::fraction - 1), unit * 1.1, 0x1p-126});
    ASSERT_LE(std::abs(static_cast<double>(result[i]) - value), bound) << "greatest magnitude of bits " << greatest;
  }
}

TYPED_TEST(Mx, LawForGreatestMagnitudesFromEndToEnd) {
  std::mt19937_64 random(1);
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += kSanitized ? 0x2fffff : 0x1ffff)
    ASSERT_NO_FATAL_FAILURE(try_block<TypeParam>(static_cast<std::uint32_t>(bits), random));
  // Magnitudes around the changes of the scale at 1.8125 and 1.875, and around its limits.
  for (const float middle :
       {1.8125f, 1.875f, 2.0f, 1.75f, 0x1.dp-100f, 0x1.dp-109f, 0x1.dp127f, 0x1.ep-100f, 0x1p-126f, 0x1p-125f,
        0x1p-108f, 0x1.ep-109f, 0x1p-94f, 0x1.ep-95f, 0x1.cp127f, 0x1.ep127f, 0x1.ep126f}) {
    const auto bits = std::bit_cast<std::uint32_t>(middle);
    for (std::uint32_t one = bits - 300; one < bits + 300; ++one)
      ASSERT_NO_FATAL_FAILURE(try_block<TypeParam>(one, random));
  }
  for (std::uint32_t one = 0x7f800000u - 300; one < 0x7f800000u; ++one)
    ASSERT_NO_FATAL_FAILURE(try_block<TypeParam>(one, random));
}

TYPED_TEST(Mx, NothingOverflowsBelowTheGreatestScale) {
  for (const float value : {1.8749999f, 1.875f, 1.9f, 1.9999999f}) {
    const std::vector<float> values(kBlock, value);
    for (const float result : decoded(TypeParam::codec(), encoded(TypeParam::codec(), values), kBlock))
      EXPECT_LE(std::abs(result - value), std::ldexp(value, -TypeParam::fraction - 1));
  }
}

TYPED_TEST(Mx, DenormalsBecomeZero) {
  for (const float value : {0x1p-149f, -0x1.fffffcp-127f}) {
    const std::vector<float> values(kBlock, value);
    for (const float result : decoded(TypeParam::codec(), encoded(TypeParam::codec(), values), kBlock)) {
      EXPECT_EQ(result, 0.0f);
      EXPECT_EQ(std::signbit(result), std::signbit(value));
    }
  }
}

TYPED_TEST(Mx, WhatIsNotFiniteMakesItsBlockNan) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t place : {0u, 31u, 32u, 63u, 64u, 70u}) {
      std::vector<float> values(71, 1.0f);
      values[place] = value;
      const Wire wire = encoded(TypeParam::codec(), values);
      EXPECT_EQ(std::to_integer<int>(wire[place / kBlock * (kBlock + 1)]), 255);
      const std::vector<float> result = decoded(TypeParam::codec(), wire, 71);
      for (std::size_t i = 0; i < 71; ++i)
        ASSERT_EQ(std::isnan(result[i]), i / kBlock == place / kBlock) << value << " at " << place << ", " << i;
    }
  }
}

}  // namespace
}  // namespace collectives
