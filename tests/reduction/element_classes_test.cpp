// Tests of reductions of booleans, complex numbers and pairs of value and index, of bitwise and logical ops, and of all
// 65,536 pairs of 8-bit floats. An oracle computes each element by itself. The tests run with every instruction set of
// this processor.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "reduction/reduction.hpp"
#include "support/instruction_sets.hpp"

namespace collectives {
namespace {

using Kind = ReduceOp::Kind;
using Bytes = std::vector<std::byte>;

/// Runs `action` with the default and with every instruction set.
template <class Action>
void with_instruction_sets(Action&& action) {
  action();
  for (const std::int64_t set : instruction_sets()) {
    SCOPED_TRACE(hwy::TargetName(set));
    use_instruction_set(set);
    action();
  }
  use_instruction_set(0);
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Folds `inputs` of elements of T to an unaligned out, in place of the last input, and with streaming stores. Expects
/// the elements of `expected` each time. `same` compares two elements.
template <class T>
void expect_fold(const ReduceOp& op, DataType type, const std::vector<std::vector<T>>& inputs,
                 const std::vector<T>& expected, const std::function<bool(const T&, const T&)>& same) {
  const std::size_t count = expected.size(), bytes = count * sizeof(T);
  const int ranks = static_cast<int>(inputs.size());
  const auto check = [&](const std::byte* out) {
    for (std::size_t i = 0; i < count; ++i) {
      T got;
      std::memcpy(static_cast<void*>(&got), out + i * sizeof(T), sizeof(T));
      ASSERT_TRUE(same(got, expected[i])) << to_string(op.kind()) << " of " << to_string(type) << ", element " << i;
    }
  };
  std::vector<Bytes> copies;
  std::vector<Source> sources;
  for (const auto& input : inputs) copies.push_back(bytes_of(input));
  for (const Bytes& copy : copies) sources.push_back({copy.data(), true});
  Bytes unaligned(bytes + 1), streamed(bytes), other(bytes);
  fold(op, type, sources, unaligned.data() + 1, count, ranks);
  check(unaligned.data() + 1);
  std::byte* const outs[] = {streamed.data(), other.data()};
  fold(op, type, sources, outs, count, ranks, Stores::streaming);
  fence_streams();
  check(streamed.data());
  check(other.data());
  Fold(op, type, ranks)(sources, other.data(), count);
  check(other.data());
  fold(op, type, sources, copies.back().data(), count, ranks);
  check(copies.back().data());
}

template <class T>
bool equal_bytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Returns whether values are true by the logical or bitwise op `kind`, applied to bits.
std::uint64_t of_bits(Kind kind, std::uint64_t a, std::uint64_t b) {
  if (kind == Kind::bitwise_and || kind == Kind::logical_and) return a & b;
  if (kind == Kind::bitwise_or || kind == Kind::logical_or) return a | b;
  return a ^ b;
}
bool is_logical(Kind kind) {
  return kind == Kind::logical_and || kind == Kind::logical_or || kind == Kind::logical_xor;
}
constexpr Kind kBitOps[] = {Kind::bitwise_and, Kind::bitwise_or, Kind::bitwise_xor,
                            Kind::logical_and, Kind::logical_or, Kind::logical_xor};

/// Returns all 65,536 pairs of bytes, as two vectors.
std::vector<std::vector<std::uint8_t>> all_pairs() {
  std::vector<std::vector<std::uint8_t>> pairs(2);
  for (unsigned pair = 0; pair < 65536; ++pair) {
    pairs[0].push_back(static_cast<std::uint8_t>(pair));
    pairs[1].push_back(static_cast<std::uint8_t>(pair >> 8));
  }
  return pairs;
}

// ---- booleans ----

TEST(Booleans, EveryByteButZeroIsTrueAndResultsAreZeroOrOne) {
  const auto inputs = all_pairs();
  const std::pair<Kind, std::function<bool(bool, bool)>> ops[] = {
      {Kind::sum, std::logical_or<>()},           {Kind::product, std::logical_and<>()},
      {Kind::min, std::logical_and<>()},          {Kind::max, std::logical_or<>()},
      {Kind::bitwise_and, std::logical_and<>()},  {Kind::bitwise_or, std::logical_or<>()},
      {Kind::bitwise_xor, std::not_equal_to<>()}, {Kind::logical_and, std::logical_and<>()},
      {Kind::logical_or, std::logical_or<>()},    {Kind::logical_xor, std::not_equal_to<>()}};
  for (const auto& [kind, truth] : ops) {
    std::vector<std::uint8_t> expected;
    for (std::size_t i = 0; i < inputs[0].size(); ++i)
      expected.push_back(truth(inputs[0][i] != 0, inputs[1][i] != 0) ? 1 : 0);
    with_instruction_sets([&, kind = kind] {
      expect_fold<std::uint8_t>(ReduceOp::of(kind), DataType::boolean, inputs, expected, equal_bytes<std::uint8_t>);
    });
  }
}

TEST(Booleans, OneSourceBecomesZeroOrOne) {
  std::vector<std::uint8_t> all, expected;
  for (unsigned byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<std::uint8_t>(byte));
    expected.push_back(byte != 0 ? 1 : 0);
  }
  for (const Kind kind : {Kind::sum, Kind::product, Kind::max, Kind::bitwise_xor})
    expect_fold<std::uint8_t>(ReduceOp::of(kind), DataType::boolean, {all}, expected, equal_bytes<std::uint8_t>);
}

// ---- bitwise and logical ops ----

template <class T>
class BitOps : public ::testing::Test {};
using Integers = ::testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                                  std::int64_t, std::uint64_t>;
struct IntegerName {
  template <class T>
  static std::string GetName(int) {
    return std::string(to_string(data_type_v<T>));
  }
};
TYPED_TEST_SUITE(BitOps, Integers, IntegerName);

/// Inputs hold all 65,536 pairs of their lowest bytes, and random upper bytes. Every fourth element has zeros there.
TYPED_TEST(BitOps, AreThoseOfCpp) {
  using T = TypeParam;
  std::mt19937_64 random(5);
  const auto pairs = all_pairs();
  std::vector<std::vector<T>> inputs(3);
  for (std::size_t i = 0; i < pairs[0].size(); ++i) {
    for (std::size_t s = 0; s < 3; ++s) {
      const std::uint64_t upper = i % 4 == 0 ? 0 : random() & ~std::uint64_t{0xff};
      inputs[s].push_back(static_cast<T>(upper | (s < 2 ? pairs[s][i] : i % 3)));
    }
  }
  for (const Kind kind : kBitOps) {
    std::vector<T> expected;
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      const auto term = [&](std::size_t s) {
        const T value = inputs[s][i];
        return is_logical(kind) ? std::uint64_t{value != 0} : static_cast<std::uint64_t>(value);
      };
      expected.push_back(static_cast<T>(of_bits(kind, of_bits(kind, term(0), term(1)), term(2))));
    }
    with_instruction_sets(
        [&] { expect_fold<T>(ReduceOp::of(kind), data_type_v<T>, inputs, expected, equal_bytes<T>); });
  }
}

// ---- 8-bit floats ----

template <class T>
class AllPairs : public ::testing::Test {};
using Floats8 = ::testing::Types<float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(AllPairs, Floats8, IntegerName);

template <class T>
bool same_float8(const T& a, const T& b) {
  return a.bits == b.bits || (std::isnan(static_cast<float>(a)) && std::isnan(static_cast<float>(b)));
}

TYPED_TEST(AllPairs, ReduceInF32AndRoundOnce) {
  using T = TypeParam;
  std::vector<std::vector<T>> inputs(2);
  const auto pairs = all_pairs();
  for (std::size_t s = 0; s < 2; ++s) {
    for (const std::uint8_t bits : pairs[s]) {
      T value;
      value.bits = bits;
      inputs[s].push_back(value);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto least = [nan](float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return nan;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  };
  const std::pair<ReduceOp, std::function<float(float, float)>> ops[] = {
      {ReduceOp::sum, std::plus<>()},
      {ReduceOp::average, [](float a, float b) { return (a + b) / 2; }},
      {ReduceOp::product, std::multiplies<>()},
      {ReduceOp::min, least},
      {ReduceOp::max, [&](float a, float b) { return -least(-a, -b); }},
      {ReduceOp::pre_scaled_sum(0.3), [](float a, float b) { return a * 0.3f + b * 0.3f; }}};
  for (const auto& [op, result] : ops) {
    std::vector<T> expected;
    for (std::size_t i = 0; i < inputs[0].size(); ++i)
      expected.push_back(T(result(static_cast<float>(inputs[0][i]), static_cast<float>(inputs[1][i]))));
    with_instruction_sets([&, &op = op] { expect_fold<T>(op, data_type_v<T>, inputs, expected, same_float8<T>); });
  }
}

TYPED_TEST(AllPairs, SumsBeyondTheGreatestValueStayThereAndInfinitiesStay) {
  using T = TypeParam;
  const float most = std::is_same_v<T, float8_e4m3> ? 448 : 57344, infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<T>> inputs{{T(most), T(-most), T(infinity), T(most)},
                                           {T(most), T(-most), T(1.0f), T(-most)},
                                           {T(most), T(-most), T(1.0f), T(1.0f)}};
  const std::vector<T> expected{T(most), T(-most), T(infinity), T(1.0f)};
  with_instruction_sets([&] { expect_fold<T>(ReduceOp::sum, data_type_v<T>, inputs, expected, equal_bytes<T>); });
  EXPECT_EQ(std::isinf(static_cast<float>(expected[2])), (std::is_same_v<T, float8_e5m2>));
}

/// More sources than are widened at once: an average is divided once, after the last.
TYPED_TEST(AllPairs, ManySourcesAreAddedInRankOrder) {
  using T = TypeParam;
  std::mt19937 random(3);
  for (const std::size_t ranks : {7U, 8U, 9U, 15U, 16U, 40U}) {
    std::vector<std::vector<T>> inputs(ranks);
    for (auto& input : inputs)
      for (int i = 0; i < 600; ++i) input.push_back(T(std::uniform_real_distribution<float>(-2, 2)(random)));
    std::vector<T> sums, means;
    for (std::size_t i = 0; i < 600; ++i) {
      auto sum = static_cast<float>(inputs[0][i]);
      for (std::size_t s = 1; s < ranks; ++s) sum += static_cast<float>(inputs[s][i]);
      sums.push_back(T(sum));
      means.push_back(T(sum / static_cast<float>(ranks)));
    }
    expect_fold<T>(ReduceOp::sum, data_type_v<T>, inputs, sums, equal_bytes<T>);
    expect_fold<T>(ReduceOp::average, data_type_v<T>, inputs, means, equal_bytes<T>);
  }
}

// ---- complex numbers ----

template <class T>
class ComplexReduction : public ::testing::Test {};
using ComplexTypes = ::testing::Types<std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ComplexReduction, ComplexTypes, IntegerName);

TYPED_TEST(ComplexReduction, CombinesInRankOrder) {
  using T = TypeParam;
  using R = typename T::value_type;
  std::mt19937_64 random(9);
  const auto number = [&] { return static_cast<R>(std::uniform_real_distribution<double>(-2, 2)(random)); };
  for (const std::size_t ranks : {1U, 2U, 5U}) {
    for (const std::size_t count : {1U, 3U, 1037U}) {
      std::vector<std::vector<T>> inputs(ranks);
      for (auto& input : inputs)
        for (std::size_t i = 0; i < count; ++i) input.push_back({number(), number()});
      std::vector<T> sums, means, products, scaled;
      for (std::size_t i = 0; i < count; ++i) {
        R re = inputs[0][i].real(), im = inputs[0][i].imag(), product_re = re, product_im = im;
        const R factor = R(0.3);
        R scaled_re = re * factor, scaled_im = im * factor;
        for (std::size_t s = 1; s < ranks; ++s) {
          const R x = inputs[s][i].real(), y = inputs[s][i].imag();
          re += x, im += y, scaled_re += x * factor, scaled_im += y * factor;
          const R next = product_re * x - product_im * y;
          product_im = product_re * y + product_im * x;
          product_re = next;
        }
        sums.push_back({re, im});
        means.push_back({re / static_cast<R>(ranks), im / static_cast<R>(ranks)});
        products.push_back({product_re, product_im});
        scaled.push_back({scaled_re, scaled_im});
      }
      with_instruction_sets([&] {
        expect_fold<T>(ReduceOp::sum, data_type_v<T>, inputs, sums, equal_bytes<T>);
        expect_fold<T>(ReduceOp::average, data_type_v<T>, inputs, means, equal_bytes<T>);
        expect_fold<T>(ReduceOp::product, data_type_v<T>, inputs, products, equal_bytes<T>);
        expect_fold<T>(ReduceOp::pre_scaled_sum(0.3), data_type_v<T>, inputs, scaled, equal_bytes<T>);
      });
    }
  }
}

// ---- pairs of value and index ----

template <class T>
class Pairs : public ::testing::Test {};
using Values = ::testing::Types<float, double, std::int64_t, std::int32_t, std::int16_t>;
struct PairName {
  template <class T>
  static std::string GetName(int) {
    return std::string(to_string(data_type_v<ValueIndex<T>>));
  }
};
TYPED_TEST_SUITE(Pairs, Values, PairName);

/// Sets the pair, and its padding to bytes that are not 0.
template <class T>
void set_pair(ValueIndex<T>& pair, T value, std::int32_t index) {
  std::memset(static_cast<void*>(&pair), 0xa5, sizeof pair);
  std::memcpy(&pair.value, &value, sizeof value);
  std::memcpy(&pair.index, &index, sizeof index);
}

/// Compares the bits of value and index. Requires padding of 0 in `got`.
template <class T>
bool same_pair(const ValueIndex<T>& got, const ValueIndex<T>& expected) {
  std::byte bytes[sizeof got], wanted[sizeof got] = {};
  std::memcpy(bytes, &got, sizeof got);
  std::memcpy(wanted, &expected.value, sizeof(T));
  std::memcpy(wanted + offsetof(ValueIndex<T>, index), &expected.index, sizeof(std::int32_t));
  return std::memcmp(bytes, wanted, sizeof got) == 0;
}

template <class T>
std::vector<T> awkward_values() {
  std::vector<T> values{std::numeric_limits<T>::lowest(), T(-1), T(0), T(1), std::numeric_limits<T>::max()};
  if constexpr (std::is_floating_point_v<T>)
    for (const T value : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), T(-0.0),
                          std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN()})
      values.push_back(value);
  return values;
}

/// Returns whether `a` is a better result than `b`, by the definition of min_loc or max_loc.
template <class T>
bool better(bool least, const ValueIndex<T>& a, const ValueIndex<T>& b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
    if (std::isnan(a.value)) return a.index < b.index;
    if (a.value == b.value && std::signbit(a.value) != std::signbit(b.value)) return std::signbit(a.value) == least;
  }
  if (a.value != b.value) return (a.value < b.value) == least;
  return a.index < b.index;
}

TYPED_TEST(Pairs, HaveTheBestValueAndTheLowestIndexAndNoPadding) {
  using T = TypeParam;
  std::mt19937 random(4);
  const std::vector<T> values = awkward_values<T>();
  const std::int32_t indices[] = {std::numeric_limits<std::int32_t>::min(), -1, 0, 7,
                                  std::numeric_limits<std::int32_t>::max()};
  for (const std::size_t ranks : {1U, 2U, 5U}) {
    std::vector<std::vector<ValueIndex<T>>> inputs(ranks);
    for (auto& input : inputs) {
      input.resize(3000);
      for (auto& pair : input) set_pair(pair, values[random() % values.size()], indices[random() % 5]);
    }
    for (const bool least : {true, false}) {
      std::vector<ValueIndex<T>> expected;
      for (std::size_t i = 0; i < 3000; ++i) {
        ValueIndex<T> best = inputs[0][i];
        for (std::size_t s = 1; s < ranks; ++s)
          if (better(least, inputs[s][i], best)) best = inputs[s][i];
        T value = best.value;
        if constexpr (std::is_floating_point_v<T>)
          if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
        expected.push_back({value, best.index});
      }
      expect_fold<ValueIndex<T>>(least ? ReduceOp::min_loc : ReduceOp::max_loc, data_type_v<ValueIndex<T>>, inputs,
                                 expected, same_pair<T>);
    }
  }
}

}  // namespace
}  // namespace collectives
