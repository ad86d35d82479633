// Tests of the algorithm by which GPUs select the k elements with the greatest magnitudes. Loops on the CPU replace the
// GPU's kernels. The results are compared with those of the CPU's Selector. Elements that are not selected stay in a
// residual, to which the next gradient is added.
#include "compression/radix_select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compression/select.hpp"

namespace collectives::radix {
namespace {

using Vector = std::vector<float>;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// Does the work of the GPU's kernels in loops, one element after another.
class Loops {
 public:
  Loops(const Input& in, std::size_t n, std::size_t k)
      : in_(in), n_(n), k_(k), capacity_(candidate_capacity(n, k)), search_(begin(n, k)) {}

  void add_and_find() {
    for (std::size_t i = 0; i < n_; ++i) count(bits_of(add(in_, i)), i);
    ++passes_;
    find();
  }
  void find_among_all() {
    if (few(search_, k_, capacity_) || search_.digits == kDigits) return;
    for (std::size_t i = 0; i < n_; ++i) count(bits_of(sum_at(in_, i)), i);
    ++passes_;
    find();
  }
  void collect() {
    for (std::size_t i = 0; i < n_; ++i)
      if (may_be_chosen(search_, order(i))) candidates_.push_back(static_cast<std::uint32_t>(i));
    ++passes_;
    ASSERT_LE(candidates_.size(), capacity_);
  }
  void find_among_candidates() {
    if (search_.digits == kDigits) return;
    for (const std::uint32_t i : candidates_) count(bits_of(sum_at(in_, i)), i);
    find();
  }
  void choose() {
    for (const std::uint32_t i : candidates_)
      if (may_be_chosen(search_, order(i))) chosen.push_back(i);
  }
  int passes() const { return passes_; }

  std::vector<std::uint32_t> chosen;

 private:
  std::uint64_t order(std::size_t i) const { return order_of(bits_of(sum_at(in_, i)), static_cast<std::uint32_t>(i)); }
  void count(std::uint32_t bits, std::size_t i) {
    const std::uint64_t order = order_of(bits, static_cast<std::uint32_t>(i));
    if (alike(search_, order)) ++counts_.at(digit_of(order, search_.digits));
  }
  void find() {
    std::vector<std::uint32_t> sums(kBins / kGroup);
    for (std::size_t bin = 0; bin < kBins; ++bin) sums[bin / kGroup] += counts_[bin];
    find_digit(search_, counts_.data(), sums.data());
    std::ranges::fill(counts_, 0U);
  }

  const Input in_;
  const std::size_t n_, k_, capacity_;
  Search search_;
  std::vector<std::uint32_t> counts_ = std::vector<std::uint32_t>(kBins), candidates_;
  int passes_ = 0;
};

/// Selects with the loops and with Selector. Expects equal selections and equal residuals (`accumulated`, `velocity`).
int expect_same_as_selector(const Vector& gradient, std::size_t k, Vector accumulated = {}, Vector velocity = {}) {
  Vector residual = accumulated, moved = velocity;
  const Input in{gradient.data(), residual.empty() ? nullptr : residual.data(), moved.empty() ? nullptr : moved.data(),
                 0.9F, 1};
  Loops loops(in, gradient.size(), k);
  radix_select(loops);
  std::vector<std::uint32_t> indices(k);
  Vector values(k);
  Selector().select({.gradient = gradient, .accumulated = accumulated, .velocity = velocity, .momentum = 0.9F}, k,
                    indices.data(), values.data());
  EXPECT_EQ(loops.chosen, indices);
  for (std::size_t c = 0; c < std::min(k, loops.chosen.size()); ++c) {
    EXPECT_EQ(bits_of(sum_at(in, loops.chosen[c])), bits_of(values[c]));
    if (!residual.empty()) residual[loops.chosen[c]] = 0;
    if (!moved.empty()) moved[loops.chosen[c]] = 0;
  }
  EXPECT_EQ(residual, accumulated);
  EXPECT_EQ(moved, velocity);
  return loops.passes();
}

Vector normal(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  Vector values(n);
  for (float& value : values) value = draw(random);
  return values;
}

TEST(RadixSelect, DigitsAreAllBitsOnce) {
  for (const std::uint64_t order : {std::uint64_t{0}, ~std::uint64_t{0} >> 1, std::uint64_t{0x123456789abcdef0}}) {
    std::uint64_t built = 0;
    for (int d = 0; d < kDigits; ++d) {
      EXPECT_LT(digit_of(order, d), kBins);
      built |= static_cast<std::uint64_t>(digit_of(order, d)) << shift_of(d);
    }
    EXPECT_EQ(built, order);
  }
}

TEST(RadixSelect, SelectsFromGradientsOfAnySizeAndDensity) {
  for (const std::size_t n : {2U, 3U, 31U, 4096U, 50'000U}) {
    for (const std::size_t k : {std::size_t{1}, n / 1000, n / 100, n / 2, n - 1}) {
      if (k == 0) continue;
      SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(n));
      expect_same_as_selector(normal(n, 1), k);
      expect_same_as_selector(normal(n, 1), k, normal(n, 2));
      expect_same_as_selector(normal(n, 1), k, normal(n, 2), normal(n, 3));
    }
  }
}

TEST(RadixSelect, SpreadValuesTakeTwoPasses) { EXPECT_EQ(expect_same_as_selector(normal(200'000, 1), 2000), 2); }

TEST(RadixSelect, SelectsAmongTiesOnly) {
  // All magnitudes are equal. Three passes examine the digits of the magnitude, and two those of the index. One more
  // pass collects the remaining block of 1024 elements.
  EXPECT_EQ(expect_same_as_selector(Vector(100'000, -1.5F), 10), 5 + 1);
  expect_same_as_selector(Vector(100'000, 0.0F), 99'999);
}

TEST(RadixSelect, TiesAtTheEdgeGoToTheLowestIndex) {
  Vector values = normal(60'000, 4);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = i % 2 == 0 ? 2.0F : -2.0F;
  for (const std::size_t k : {2000U, 5000U, 15'000U}) expect_same_as_selector(values, k);
}

TEST(RadixSelect, NanAboveInfinityAboveTheRest) {
  Vector values = normal(1000, 5);
  values[700] = std::numeric_limits<float>::quiet_NaN();
  values[30] = -std::numeric_limits<float>::infinity();
  for (const std::size_t k : {1U, 2U, 3U}) expect_same_as_selector(values, k);
}

TEST(RadixSelect, DenormalsHaveTheirOrder) {
  Vector values(1000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 7919 % 1000) | (i % 2 == 0 ? 0x80000000U : 0));
  expect_same_as_selector(values, 77);
}

TEST(RadixSelect, TheCandidateBufferNeverOverflows) {
  // The magnitudes differ in the last bits only, and there are more of them than one collecting pass can hold.
  Vector values(50'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::bit_cast<float>(0x3f800000U + static_cast<std::uint32_t>(i * 31 % 997));
  for (const std::size_t k : {1U, 100U, 10'000U}) expect_same_as_selector(values, k);
}

}  // namespace
}  // namespace collectives::radix
