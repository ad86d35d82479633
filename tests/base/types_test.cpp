// Tests of element types: the 16-bit floats, compared with tables of all their values, and typed buffers.
#include "collectives/types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collectives {
namespace {

/// Returns the value of a 16-bit float by its definition: sign, exponent, fraction.
template <class T, int kFractionBits, int kBias>
struct Format {
  using Type = T;
  static constexpr unsigned kInfinity = 0x7fffu >> kFractionBits << kFractionBits;

  /// Returns the value of a bit pattern without its sign bit. For the pattern of infinity, returns the power of two
  /// from which on numbers are rounded to infinity.
  static double value(unsigned magnitude) {
    const int exponent = static_cast<int>(magnitude >> kFractionBits);
    const int fraction = static_cast<int>(magnitude & ((1u << kFractionBits) - 1));
    if (exponent == 0) return std::ldexp(fraction, 1 - kBias - kFractionBits);
    return std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
  }
  /// Returns the table of value(m) for all patterns m up to that of infinity. The values ascend.
  static const std::vector<double>& values() {
    static const std::vector<double> all = [] {
      std::vector<double> made;
      for (unsigned magnitude = 0; magnitude <= kInfinity; ++magnitude) made.push_back(value(magnitude));
      return made;
    }();
    return all;
  }
  /// Returns the bits of the value nearest to `number`. In a tie, returns the even one of the two patterns. `number` is
  /// not NaN.
  static unsigned nearest(float number) {
    const double magnitude = std::abs(static_cast<double>(number));
    const auto above = std::ranges::lower_bound(values(), magnitude);
    unsigned bits = kInfinity;
    if (above != values().end()) {
      bits = static_cast<unsigned>(above - values().begin());
      if (*above != magnitude) {
        const double up = *above - magnitude, down = magnitude - values()[bits - 1];
        if (down < up || (down == up && bits % 2 == 1)) --bits;
      }
    }
    return bits | (std::signbit(number) ? 0x8000u : 0u);
  }
};
using F16 = Format<float16, 10, 15>;
using Bf16 = Format<bfloat16, 7, 127>;

template <class F>
typename F::Type of_bits(unsigned bits) {
  typename F::Type value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

template <class F>
class SixteenBitFloat : public ::testing::Test {};
struct FormatName {
  template <class F>
  static std::string GetName(int) {
    return std::string(to_string(data_type_v<typename F::Type>));
  }
};
using Formats = ::testing::Types<F16, Bf16>;
TYPED_TEST_SUITE(SixteenBitFloat, Formats, FormatName);

TYPED_TEST(SixteenBitFloat, EveryBitPatternDecodesToItsValue) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float decoded = static_cast<float>(of_bits<TypeParam>(bits));
    const unsigned magnitude = bits & 0x7fffu;
    EXPECT_EQ(std::signbit(decoded), (bits & 0x8000u) != 0) << std::hex << bits;
    if (magnitude > TypeParam::kInfinity) {
      EXPECT_TRUE(std::isnan(decoded)) << std::hex << bits;
    } else if (magnitude == TypeParam::kInfinity) {
      EXPECT_TRUE(std::isinf(decoded)) << std::hex << bits;
    } else {
      EXPECT_EQ(std::abs(static_cast<double>(decoded)), TypeParam::value(magnitude)) << std::hex << bits;
    }
  }
}

TYPED_TEST(SixteenBitFloat, DecodingThenEncodingIsTheIdentity) {
  const unsigned quiet_bit = (TypeParam::kInfinity >> 1) & ~TypeParam::kInfinity;  // highest bit of the fraction
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fffu) > TypeParam::kInfinity;
    const typename TypeParam::Type again(static_cast<float>(of_bits<TypeParam>(bits)));
    EXPECT_EQ(again.bits, nan ? bits | quiet_bit : bits) << std::hex << bits;
  }
}

TYPED_TEST(SixteenBitFloat, EncodingRoundsToNearestEvenAtEveryBoundary) {
  const auto check = [](float number) {
    const typename TypeParam::Type encoded(number);
    ASSERT_EQ(encoded.bits, TypeParam::nearest(number)) << std::hexfloat << number;
  };
  for (unsigned magnitude = 0; magnitude < TypeParam::kInfinity; ++magnitude) {
    const auto& values = TypeParam::values();
    const float middle = static_cast<float>((values[magnitude] + values[magnitude + 1]) / 2);
    for (const float number : {static_cast<float>(values[magnitude]), middle, std::nextafter(middle, 0.0f),
                               std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
      check(number);
      check(-number);
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float number : {std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                             std::numeric_limits<float>::denorm_min(), infinity}) {
    check(number);
    check(-number);
  }
}

TYPED_TEST(SixteenBitFloat, EncodingRoundsRandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 500000; ++i) {
    const float number = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(number)) continue;
    const typename TypeParam::Type encoded(number);
    ASSERT_EQ(encoded.bits, TypeParam::nearest(number)) << std::hexfloat << number;
  }
}

TYPED_TEST(SixteenBitFloat, NanStaysNanAndKeepsItsSign) {
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto word = static_cast<std::uint32_t>(random()) | 0x7f800001u;
    const typename TypeParam::Type encoded(std::bit_cast<float>(word));
    ASSERT_TRUE(std::isnan(static_cast<float>(encoded))) << std::hex << word;
    ASSERT_EQ(encoded.bits >> 15, word >> 31);
  }
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) unsigned encode_by_processor(float number) {
  return static_cast<unsigned>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(number), _MM_FROUND_TO_NEAREST_INT))) &
         0xffffu;
}

TEST(Float16, AgreesWithTheProcessorsConversion) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this processor has no such instruction";
  std::mt19937 random(3);
  for (int i = 0; i < 2000000; ++i) {
    const auto word = static_cast<std::uint32_t>(random());
    const auto number = std::bit_cast<float>(word);
    ASSERT_EQ(float16(number).bits, encode_by_processor(number)) << std::hex << word;
  }
}
#endif

TEST(Names, AreDistinctAndKnown) {
  std::set<std::string_view> names;
  for (const DataType type : kDataTypes) names.insert(to_string(type));
  for (const Collective collective : kCollectives) names.insert(to_string(collective));
  for (const ReduceOp::Kind kind : kReduceKinds) names.insert(to_string(kind));
  EXPECT_EQ(names.size(), std::size(kDataTypes) + std::size(kCollectives) + std::size(kReduceKinds));
  for (std::size_t i = 0; i < std::size(kDataTypes); ++i) EXPECT_EQ(static_cast<std::size_t>(kDataTypes[i]), i);
  for (std::size_t i = 0; i < std::size(kReduceKinds); ++i) EXPECT_EQ(static_cast<std::size_t>(kReduceKinds[i]), i);
  EXPECT_EQ(to_string(DataType::boolean), "boolean");
  EXPECT_EQ(to_string(DataType::i16_index), "i16_index");
  EXPECT_EQ(to_string(ReduceOp::max_loc.kind()), "max_loc");
  EXPECT_EQ(to_string(static_cast<DataType>(std::size(kDataTypes))), "unknown type");
  EXPECT_EQ(to_string(static_cast<ReduceOp::Kind>(std::size(kReduceKinds))), "unknown op");
  EXPECT_EQ(to_string(DataType::bf16), "bf16");
  EXPECT_EQ(to_string(Collective::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(to_string(ReduceOp::pre_scaled_sum(2).kind()), "pre_scaled_sum");
  for (const std::string_view name : names) EXPECT_FALSE(name.starts_with("unknown"));
}

TEST(Buffer, ViewsVectorsArraysAndSpans) {
  std::vector<float> vector(3);
  std::array<std::int64_t, 5> array{};
  const std::vector<bfloat16> constant(7);
  const Buffer of_vector = vector;
  EXPECT_EQ(of_vector.data, vector.data());
  EXPECT_EQ(of_vector.count, 3U);
  EXPECT_EQ(of_vector.type, DataType::f32);
  EXPECT_EQ(of_vector.bytes(), 12U);
  EXPECT_EQ(Buffer(array).type, DataType::i64);
  EXPECT_EQ(Buffer(std::span(vector).subspan(1)).data, vector.data() + 1);
  EXPECT_EQ(ConstBuffer(constant).type, DataType::bf16);
  EXPECT_EQ(ConstBuffer(constant).bytes(), 14U);
  EXPECT_EQ(ConstBuffer(of_vector).data, vector.data());
  static_assert(!std::is_constructible_v<Buffer, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<Buffer, std::vector<bool>&>);
  static_assert(!Element<long double> && !Element<ValueIndex<std::uint32_t>> && !Element<std::complex<long double>>);
}

TEST(Types, SizesAndWhichAreFloating) {
  for (const DataType type : kDataTypes) EXPECT_GT(size_of(type), 0U) << to_string(type);
  EXPECT_EQ(size_of(DataType::bf16), 2U);
  EXPECT_EQ(size_of(DataType::u64), 8U);
  EXPECT_TRUE(is_floating(DataType::f16));
  EXPECT_FALSE(is_floating(DataType::u8));
  EXPECT_FALSE(supports(DataType::i32, ReduceOp::pre_scaled_sum(0.5)));
  EXPECT_TRUE(supports(DataType::bf16, ReduceOp::pre_scaled_sum(0.5)));
  EXPECT_TRUE(supports(DataType::u8, ReduceOp::average));
  EXPECT_EQ(size_of(static_cast<DataType>(std::size(kDataTypes))), 0U);
}

template <class T>
void expect_type(DataType type) {
  EXPECT_EQ(data_type_v<T>, type);
  EXPECT_EQ(size_of(type), sizeof(T)) << to_string(type);
}

TEST(Types, AreThoseOfTheirCppTypes) {
  expect_type<bool>(DataType::boolean);
  expect_type<std::int16_t>(DataType::i16);
  expect_type<std::uint16_t>(DataType::u16);
  expect_type<float8_e4m3>(DataType::f8e4m3);
  expect_type<float8_e5m2>(DataType::f8e5m2);
  expect_type<std::complex<float>>(DataType::complex64);
  expect_type<std::complex<double>>(DataType::complex128);
  expect_type<ValueIndex<float>>(DataType::f32_index);
  expect_type<ValueIndex<double>>(DataType::f64_index);
  expect_type<ValueIndex<long>>(DataType::i64_index);
  expect_type<ValueIndex<int>>(DataType::i32_index);
  expect_type<ValueIndex<short>>(DataType::i16_index);
  const std::array<bool, 3> flags{};
  EXPECT_EQ(ConstBuffer(flags).type, DataType::boolean);
}

TEST(Types, SupportTheOpsOfTheirClass) {
  const auto ops_of = [](DataType type) {
    std::string ops;
    for (const ReduceOp::Kind kind : kReduceKinds)
      if (supports(type, kind)) ops += std::string(to_string(kind)) + " ";
    return ops;
  };
  const std::string bits = "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor ";
  EXPECT_EQ(ops_of(DataType::f8e4m3), "sum average product min max pre_scaled_sum user ");
  EXPECT_EQ(ops_of(DataType::u16), "sum average product min max user " + bits);
  EXPECT_EQ(ops_of(DataType::boolean), "sum product min max user " + bits);
  EXPECT_EQ(ops_of(DataType::complex128), "sum average product pre_scaled_sum user ");
  EXPECT_EQ(ops_of(DataType::f32_index), "user min_loc max_loc ");
}

}  // namespace
}  // namespace collectives
