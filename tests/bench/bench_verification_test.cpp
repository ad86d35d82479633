// Tests of the oracle by which the benchmark verifies results. Right results must pass in any order of summation, and
// wrong results of every kind must be counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "collectives_bench/options.hpp"
#include "collectives_bench/verification.hpp"

namespace collectives::bench {
namespace {

using Kind = ReduceOp::Kind;
constexpr Kind kKinds[] = {Kind::sum, Kind::average,        Kind::product, Kind::min,
                           Kind::max, Kind::pre_scaled_sum, Kind::user};
// Number of elements: one and a half periods of the oracle, whose values repeat after a period.
constexpr std::size_t kCount = 3 * Oracle::kPeriod / 2;

template <class T>
std::vector<T> contribution(const Oracle& oracle, Rank rank, std::size_t first = 0, std::size_t count = kCount) {
  std::vector<T> elements(count);
  oracle.fill(rank, first, std::as_writable_bytes(std::span(elements)));
  return elements;
}

template <class T>
std::size_t wrong(const Oracle& oracle, const std::vector<T>& result, std::size_t first = 0) {
  return oracle.wrong_reductions(first, std::as_bytes(std::span(result)));
}

/// Returns the sum of the contributions in the given order of ranks, rounded once, as a correct library may compute it.
template <class T>
std::vector<T> sum_in_order(const Oracle& oracle, const std::vector<Rank>& order) {
  // Floats of 16 and 8 bits are added in f32. Integers are added as unsigned ones, so that an overflow wraps around.
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, std::conditional_t<sizeof(T) <= 2, float, T>>;
  std::vector<Wide> sums(kCount);
  for (const Rank rank : order) {
    const auto terms = contribution<T>(oracle, rank);
    for (std::size_t i = 0; i < kCount; ++i) sums[i] = static_cast<Wide>(sums[i] + static_cast<Wide>(terms[i]));
  }
  std::vector<T> rounded(kCount);
  std::ranges::transform(sums, rounded.begin(), [](Wide sum) { return static_cast<T>(sum); });
  return rounded;
}

template <class T>
void any_order_passes(int ranks) {
  std::mt19937 random(7);
  for (const Data data : {Data::exact, Data::random}) {
    const Oracle oracle(data_type_v<T>, ReduceOp::sum, ranks, data, 1);
    std::vector<Rank> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(wrong(oracle, sum_in_order<T>(oracle, order)), 0);
      std::ranges::shuffle(order, random);
    }
  }
}

TEST(BenchVerification, SumsInAnyOrderPass) {
  for (const int ranks : {1, 2, 3, 7, 64}) {
    SCOPED_TRACE(ranks);
    any_order_passes<float>(ranks);
    any_order_passes<double>(ranks);
    any_order_passes<float16>(ranks);
    any_order_passes<bfloat16>(ranks);
    any_order_passes<std::int32_t>(ranks);
    any_order_passes<std::uint64_t>(ranks);
    any_order_passes<float8_e4m3>(ranks);
    any_order_passes<std::int16_t>(ranks);
  }
}

TEST(BenchVerification, OneRankReducesToItself) {
  for (const DataType type : kDataTypes) {
    if (class_of(type) == TypeClass::complex || class_of(type) == TypeClass::value_index) continue;
    for (const Kind kind : kKinds) {
      if (kind == Kind::pre_scaled_sum || !supports(type, kind)) continue;
      for (const Data data : {Data::exact, Data::random}) {
        const Oracle oracle(type, reduce_op(kind), 1, data, 3);
        std::vector<std::byte> own(kCount * size_of(type));
        oracle.fill(0, 0, own);
        EXPECT_EQ(oracle.wrong_reductions(0, own), 0) << to_string(type) << " " << to_string(kind);
      }
    }
  }
}

TEST(BenchVerification, EveryDroppedContributionIsCounted) {
  for (const Data data : {Data::exact, Data::random}) {
    const Oracle oracle(DataType::f32, ReduceOp::sum, 4, data, 1);
    const std::size_t dropped = wrong(oracle, sum_in_order<float>(oracle, {0, 1, 3}));
    EXPECT_GT(dropped, kCount * 3 / 4);  // not all elements, because a dropped contribution may be zero
  }
}

TEST(BenchVerification, SixteenBitSumsRoundedAtEveryHopAreCounted) {
  const Oracle oracle(DataType::bf16, ReduceOp::sum, 7, Data::random, 1);
  std::vector<bfloat16> hops = contribution<bfloat16>(oracle, 0);
  for (Rank rank = 1; rank < 7; ++rank) {
    const auto terms = contribution<bfloat16>(oracle, rank);
    for (std::size_t i = 0; i < kCount; ++i)
      hops[i] = bfloat16(static_cast<float>(hops[i]) + static_cast<float>(terms[i]));
  }
  EXPECT_GT(wrong(oracle, hops), kCount / 20);
}

TEST(BenchVerification, OneWrongElementIsOne) {
  for (const Data data : {Data::exact, Data::random}) {
    const Oracle oracle(DataType::f32, ReduceOp::sum, 3, data, 1);
    auto result = sum_in_order<float>(oracle, {0, 1, 2});
    result[12345 % kCount] += 0.01F;
    EXPECT_EQ(wrong(oracle, result), 1);
    result[0] = std::nanf("");
    EXPECT_EQ(wrong(oracle, result), 2);
  }
}

TEST(BenchVerification, AnotherSlicesDataIsWrong) {
  const Oracle oracle(DataType::i32, ReduceOp::sum, 4, Data::random, 1);
  const auto result = sum_in_order<std::int32_t>(oracle, {0, 1, 2, 3});
  for (const std::size_t shift : {1UL, 16UL, 1024UL, 1UL << 20, 3UL << 24}) {
    EXPECT_EQ(wrong(oracle, result, shift), kCount) << shift;
  }
}

TEST(BenchVerification, IntegerAverageIsTruncatedTowardZero) {
  const Oracle oracle(DataType::i8, ReduceOp::average, 3, Data::random, 1);
  std::vector<std::int8_t> means(kCount);
  const auto a = contribution<std::int8_t>(oracle, 0), b = contribution<std::int8_t>(oracle, 1),
             c = contribution<std::int8_t>(oracle, 2);
  for (std::size_t i = 0; i < kCount; ++i) means[i] = static_cast<std::int8_t>((a[i] + b[i] + c[i]) / 3);
  EXPECT_EQ(wrong(oracle, means), 0);
}

TEST(BenchVerification, PreScaledSumCarriesItsFactor) {
  for (const Data data : {Data::exact, Data::random}) {
    const Oracle oracle(DataType::f32, reduce_op(Kind::pre_scaled_sum), 2, data, 1);
    const auto a = contribution<float>(oracle, 0), b = contribution<float>(oracle, 1);
    std::vector<float> scaled(kCount), unscaled(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      scaled[i] = a[i] * 0.75F + b[i] * 0.75F;
      unscaled[i] = a[i] + b[i];
    }
    EXPECT_EQ(wrong(oracle, scaled), 0);
    EXPECT_GT(wrong(oracle, unscaled), kCount / 2);
  }
}

TEST(BenchVerification, ProductsOfManyRanksStayInRange) {
  const Oracle oracle(DataType::f16, ReduceOp::product, 64, Data::random, 1);
  std::vector<float> product(kCount, 1.0F);
  for (Rank rank = 0; rank < 64; ++rank) {
    const auto terms = contribution<float16>(oracle, rank);
    for (std::size_t i = 0; i < kCount; ++i) product[i] *= static_cast<float>(terms[i]);
  }
  std::vector<float16> rounded(kCount);
  std::ranges::transform(product, rounded.begin(), [](float value) { return float16(value); });
  EXPECT_TRUE(std::ranges::all_of(product, [](float value) { return std::abs(value) < 100; }));
  EXPECT_EQ(wrong(oracle, rounded), 0);
}

TEST(BenchVerification, UserOpIsItsOwnCombination) {
  const Oracle oracle(DataType::u32, reduce_op(Kind::user), 3, Data::random, 1);
  const auto a = contribution<std::uint32_t>(oracle, 0), b = contribution<std::uint32_t>(oracle, 1),
             c = contribution<std::uint32_t>(oracle, 2);
  std::vector<std::uint32_t> folded(kCount);
  for (std::size_t i = 0; i < kCount; ++i) folded[i] = a[i] ^ b[i] ^ c[i];
  EXPECT_EQ(wrong(oracle, folded), 0);
}

TEST(BenchVerification, CopiesAreComparedFromAnyPosition) {
  const Oracle oracle(DataType::u8, std::nullopt, 2, Data::random, 1);
  auto copy = contribution<std::uint8_t>(oracle, 1, 5000, 20000);
  EXPECT_EQ(oracle.wrong_copies(1, 5000, std::as_bytes(std::span(copy))), 0);
  EXPECT_GT(oracle.wrong_copies(0, 5000, std::as_bytes(std::span(copy))), 19000);
  copy.back() ^= 1U;
  EXPECT_EQ(oracle.wrong_copies(1, 5000, std::as_bytes(std::span(copy))), 1);
}

TEST(BenchVerification, AnotherSeedIsOtherData) {
  const Oracle one(DataType::u64, std::nullopt, 1, Data::random, 1),
      two(DataType::u64, std::nullopt, 1, Data::random, 2);
  EXPECT_NE(contribution<std::uint64_t>(one, 0), contribution<std::uint64_t>(two, 0));
}

TEST(HashBytes, NoticesOneBit) {
  for (const std::size_t bytes : {1UL, 7UL, 8UL, 9UL, 1000UL}) {
    std::vector<std::byte> data(bytes);
    const auto before = hash_bytes(data);
    data.back() ^= std::byte{1};
    EXPECT_NE(hash_bytes(data), before);
  }
}

}  // namespace
}  // namespace collectives::bench
