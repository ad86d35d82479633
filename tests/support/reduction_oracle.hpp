// Oracle of reductions: computes the result of an element from all contributions, without vector instructions. The
// loops of the library must give the same bits, with every instruction set of this processor. One test includes this
// header, so its names have internal linkage.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "reduction/dispatch.hpp"
#include "reduction/reduction.hpp"
#include "support/instruction_sets.hpp"

namespace collectives {
namespace {

__extension__ using Int128 = __int128;
using Sizes = std::initializer_list<std::size_t>;
using Outs = std::vector<std::byte*>;

/// Runs `action`, which writes `bytes` bytes to each of `outs`, with every instruction set from the same start, and
/// expects the same bits.
template <class Action>
void with_every_instruction_set(std::span<std::byte* const> outs, std::size_t bytes, Action&& action) {
  const auto contents = [&] {
    std::vector<std::vector<std::byte>> result;
    for (const std::byte* out : outs) result.emplace_back(out, out + bytes);
    return result;
  };
  const auto before = contents();
  action();
  const auto expected = contents();
  for (const std::int64_t set : instruction_sets()) {
    for (std::size_t o = 0; o < outs.size(); ++o) std::ranges::copy(before[o], outs[o]);
    use_instruction_set(set);
    action();
    const auto got = contents();
    for (std::size_t o = 0; o < outs.size(); ++o) {
      const auto wrong = std::ranges::mismatch(got[o], expected[o]).in1 - got[o].begin();
      EXPECT_EQ(wrong, static_cast<std::ptrdiff_t>(bytes)) << "byte of out " << o << ", " << hwy::TargetName(set);
    }
  }
  use_instruction_set(0);
}

void fold_everywhere(const ReduceOp& op, DataType type, std::span<const Source> sources, const Outs& outs,
                     std::size_t count, int finish_ranks, Stores stores = Stores::cached) {
  SCOPED_TRACE(std::string(to_string(op.kind())) + " of " + std::to_string(sources.size()));
  with_every_instruction_set(outs, count * size_of(type),
                             [&] { fold(op, type, sources, outs, count, finish_ranks, stores); });
}

template <class T>
constexpr bool kFloating = is_floating(data_type_v<T>);
/// Whether T is a float of 16 or 8 bits, which is accumulated in f32.
template <class T>
constexpr bool kSmallFloat = kFloating<T> && sizeof(T) <= 2;

/// Type in which the oracle computes with elements of type T.
template <class T>
using Wide = std::conditional_t<kSmallFloat<T>, float, std::conditional_t<kFloating<T>, T, Int128>>;

template <class T>
bool is_nan(T value) {
  return kFloating<T> && std::isnan(static_cast<double>(static_cast<Wide<T>>(value)));
}

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
/// Returns whether the bits are equal or both are NaN, because the payload of a sum of NaNs is unspecified.
template <class T>
bool same_value(T a, T b) {
  return same_bits(a, b) || (is_nan(a) && is_nan(b));
}

/// Compares two values in the order that min and max document: -0 is below +0, and NaN is above all numbers.
template <class T>
bool less(T a, T b) {
  const Wide<T> x = static_cast<Wide<T>>(a), y = static_cast<Wide<T>>(b);
  if constexpr (kFloating<T>) {
    if (x == y) return std::signbit(x) && !std::signbit(y);
  }
  return x < y;
}

template <class T>
T canonical_nan() {
  return static_cast<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
}

/// Returns the expected result of one element. `values` are the contributions of all ranks, in rank order.
template <class T>
T oracle(const ReduceOp& op, const std::vector<T>& values) {
  using W = Wide<T>;
  const ReduceOp::Kind kind = op.kind();
  if (kind == ReduceOp::Kind::min || kind == ReduceOp::Kind::max) {
    if (std::ranges::any_of(values, is_nan<T>)) return canonical_nan<T>();
    const auto best = kind == ReduceOp::Kind::min ? std::ranges::min_element(values, less<T>)
                                                  : std::ranges::max_element(values, less<T>);
    return *best;
  }
  if constexpr (!kFloating<T>) {
    if (kind == ReduceOp::Kind::product) {
      std::uint64_t product = 1;
      for (const T value : values) product *= static_cast<std::uint64_t>(value);
      return static_cast<T>(product);
    }
  }
  const auto factor = static_cast<W>(kind == ReduceOp::Kind::pre_scaled_sum ? op.factor() : 1.0);
  W result{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const W term = static_cast<W>(values[i]) * factor;
    if (i == 0) {
      result = term;
    } else if (kind == ReduceOp::Kind::product) {
      result *= term;
    } else {
      result += term;
    }
  }
  if (kind == ReduceOp::Kind::average) result /= static_cast<W>(values.size());
  return static_cast<T>(result);
}

template <class T>
T random_element(std::mt19937_64& random) {
  if constexpr (kFloating<T>) {
    const double magnitude = std::uniform_real_distribution<double>(0.5, 2.0)(random);
    return static_cast<T>(static_cast<Wide<T>>(random() % 2 == 0 ? magnitude : -magnitude));
  } else {
    return static_cast<T>(random());
  }
}

/// Vectors of equal length, each starting `misalignment` bytes after an aligned address.
template <class T>
class Vectors {
 public:
  Vectors(std::size_t vectors, std::size_t count, std::size_t misalignment = 0)
      : count_(count), misalignment_(misalignment), bytes_(vectors) {
    for (auto& bytes : bytes_) bytes.resize(count * sizeof(T) + misalignment);
  }
  static Vectors random(std::size_t vectors, std::size_t count, std::size_t misalignment, std::uint64_t seed) {
    Vectors result(vectors, count, misalignment);
    std::mt19937_64 random(seed);
    for (std::size_t v = 0; v < vectors; ++v) {
      for (std::size_t i = 0; i < count; ++i) result.set(v, i, random_element<T>(random));
    }
    return result;
  }

  std::byte* data(std::size_t vector) { return bytes_[vector].data() + misalignment_; }
  T get(std::size_t vector, std::size_t i) {
    T value;
    std::memcpy(&value, data(vector) + i * sizeof(T), sizeof(T));
    return value;
  }
  void set(std::size_t vector, std::size_t i, T value) { std::memcpy(data(vector) + i * sizeof(T), &value, sizeof(T)); }
  std::vector<T> column(std::size_t i) {
    std::vector<T> values;
    for (std::size_t v = 0; v < bytes_.size(); ++v) values.push_back(get(v, i));
    return values;
  }
  std::vector<Source> sources() {
    std::vector<Source> result;
    for (std::size_t v = 0; v < bytes_.size(); ++v) result.push_back({data(v), true});
    return result;
  }
  std::size_t count() const { return count_; }
  std::size_t vectors() const { return bytes_.size(); }

 private:
  std::size_t count_, misalignment_;
  std::vector<std::vector<std::byte>> bytes_;
};

template <class T>
void fold_vectors(const ReduceOp& op, Vectors<T>& inputs, std::byte* out) {
  fold_everywhere(op, data_type_v<T>, inputs.sources(), {out}, inputs.count(), static_cast<int>(inputs.vectors()));
}

/// Reduces into separate memory (`in_place` is empty) or into one of the inputs, and compares every element.
template <class T>
void check_against_oracle(const ReduceOp& op, Vectors<T> inputs, int in_place = -1) {
  Vectors<T> original = inputs, output(1, inputs.count(), 1);
  std::byte* const out = in_place < 0 ? output.data(0) : inputs.data(static_cast<std::size_t>(in_place));
  fold_vectors(op, inputs, out);
  for (std::size_t i = 0; i < inputs.count(); ++i) {
    T result;
    std::memcpy(&result, out + i * sizeof(T), sizeof(T));
    ASSERT_TRUE(same_value(result, oracle(op, original.column(i))))
        << to_string(op.kind()) << " of " << inputs.vectors() << " x " << inputs.count() << ", element " << i
        << ", in place with " << in_place;
  }
}

}  // namespace
}  // namespace collectives
