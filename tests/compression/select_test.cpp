// Tests of the selection of the k elements with the greatest magnitudes, with the loops for every instruction set that
// this processor has. An oracle that sorts all elements gives the expected results. Elements that are not selected stay
// in a residual, to which the next gradient is added.
#include "compression/select.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "reduction/dispatch.hpp"
#include "support/system.hpp"
// Included second, because Highway needs dispatch.hpp's list of unwanted instruction sets first.
#include <hwy/targets.h>

namespace {
int allocations = 0;
}

#ifndef __SANITIZE_ADDRESS__  // the address sanitizer has an allocator of its own
// Not inlined, because the compiler would warn of memory from malloc() that is passed to `delete`.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace collectives {
namespace {

using Vector = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t key_of(float value) { return bits_of(value) & 0x7fffffff; }

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(bits_of(value));
  return bits;
}

struct Selected {
  std::vector<std::uint32_t> indices;
  Vector values;
  std::size_t not_finite = 0;
};

void expect_same(const Selected& got, const Selected& expected) {
  EXPECT_EQ(got.indices, expected.indices);
  EXPECT_EQ(bits_of(got.values), bits_of(expected.values));
  EXPECT_EQ(got.not_finite, expected.not_finite);
}

/// Runs select() with output vectors of exactly the documented length.
Selected select(Selector& selector, const SelectionInput& input, std::size_t k) {
  const std::size_t count = std::min(k, input.gradient.size());
  Selected result{.indices = std::vector<std::uint32_t>(count), .values = Vector(count)};
  result.not_finite = selector.select(input, k, result.indices.data(), result.values.data());
  return result;
}

Selected select(const Vector& gradient, std::size_t k) {
  Selector selector;
  return select(selector, {.gradient = gradient}, k);
}

/// Returns the expected selection: computed as select() documents it, one element after another, by sorting.
Selected oracle(const SelectionInput& input, std::size_t k) {
  Vector from(input.gradient.begin(), input.gradient.end());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (input.scale != 1) from[i] = input.scale * from[i];
    if (!input.velocity.empty()) from[i] = input.velocity[i] = input.momentum * input.velocity[i] + from[i];
    if (!input.accumulated.empty()) from[i] = input.accumulated[i] = input.accumulated[i] + from[i];
  }
  Selected result;
  result.indices.resize(from.size());
  std::iota(result.indices.begin(), result.indices.end(), 0u);
  std::ranges::stable_sort(result.indices, std::ranges::greater(), [&](std::uint32_t i) { return key_of(from[i]); });
  result.indices.resize(std::min(k, from.size()));
  std::ranges::sort(result.indices);
  for (const std::uint32_t i : result.indices) {
    result.values.push_back(from[i]);
    result.not_finite += !std::isfinite(from[i]);
    if (!input.accumulated.empty()) input.accumulated[i] = 0;
    if (!input.velocity.empty() && input.masking) input.velocity[i] = 0;
  }
  return result;
}

/// Runs `action` with every instruction set that the library was compiled for and this processor has.
void with_every_instruction_set(const std::function<void()>& action) {
  for (std::int64_t left = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS; left != 0; left &= left - 1) {
    SCOPED_TRACE(hwy::TargetName(left & -left));
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().DeInit();
    action();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

/// Selects from these gradients, one step after another, and compares each step with the oracle: without a residual,
/// with one, and with momentum.
void expect_right(const std::vector<Vector>& gradients, std::size_t k, float scale = 1) {
  SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(gradients[0].size()));
  enum Kind { alone, accumulated, momentum, unmasked };
  for (const Kind kind : {alone, accumulated, momentum, unmasked}) {
    SCOPED_TRACE(kind);
    const std::size_t n = gradients[0].size();
    Selector selector;
    Vector residual(kind == alone ? 0 : n), velocity(kind >= momentum ? n : 0);
    Vector oracle_residual = residual, oracle_velocity = velocity;
    for (const Vector& gradient : gradients) {
      const bool masking = kind != unmasked;
      const auto got = select(selector, {gradient, residual, velocity, 0.9f, scale, masking}, k);
      expect_same(got, oracle({gradient, oracle_residual, oracle_velocity, 0.9f, scale, masking}, k));
      EXPECT_EQ(bits_of(residual), bits_of(oracle_residual));
      EXPECT_EQ(bits_of(velocity), bits_of(oracle_velocity));
      if (!got.values.empty()) {
        EXPECT_EQ(selector.threshold(), key_of(*std::ranges::min_element(got.values, {}, key_of)));
      }
      if (::testing::Test::HasFailure()) return;  // the first failure is enough
    }
  }
}

Vector normal(std::size_t n, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, deviation);
  Vector values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

Vector filled(std::size_t n, const std::function<float(std::size_t)>& formula) {
  Vector values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = formula(i);
  return values;
}

TEST(Selector, SelectsAnyNumberFromAnyLength) {
  with_every_instruction_set([] {
    std::vector<std::size_t> lengths(70);
    std::iota(lengths.begin(), lengths.end(), 0u);
    for (std::size_t n = 71; n <= 4099; n += 237) lengths.push_back(n);
    for (const std::size_t n : {1023u, 1024u, 1025u, 4095u, 4096u, 4097u, 4099u}) lengths.push_back(n);
    for (const std::size_t n : lengths) {
      const auto seed = static_cast<unsigned>(3 * n);
      for (const std::size_t k :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, n / 100, n / 2, n - (n > 0), n, n + 1}) {
        expect_right({normal(n, seed), normal(n, seed + 1), normal(n, seed + 2)}, k);
      }
    }
  });
}

TEST(Selector, HandlesMoreCandidatesThanItsBufferHolds) {
  constexpr std::size_t kLength = 50'000;
  with_every_instruction_set([] {
    for (const std::size_t k : {1u, 100u, 500u, 20'000u}) {
      expect_right({filled(kLength, [](std::size_t i) { return static_cast<float>(i); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return static_cast<float>(kLength - i); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return static_cast<float>(i * 7 % 5); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return static_cast<float>(i / 9000); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return i % 1000 == 999 ? 2.f : 1.f; })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return 1 + static_cast<float>(i * 7919 % 251) * 0x1p-23f; })},
                   k);
      expect_right({normal(kLength, 1), normal(kLength, 2)}, k);
    }
  });
}

TEST(Selector, TiesGoToTheLowestIndex) {
  EXPECT_EQ(select({1, -1, 1, 2, -2, 1}, 4).indices, (std::vector<std::uint32_t>{0, 1, 3, 4}));
  with_every_instruction_set([] {
    for (const std::size_t n : {1u, 15u, 16u, 17u, 100u, 5000u}) {
      for (const float value : {0.f, -0.f, 1.f, -1.f, 1e-45f, kInfinity, kNan}) {
        for (const std::size_t k : {std::size_t{1}, n / 3, n - 1}) {
          const auto got = select(Vector(n, value), k);
          for (std::size_t c = 0; c < k; ++c) ASSERT_EQ(got.indices[c], c);
          ASSERT_EQ(got.not_finite, std::isfinite(value) ? 0 : k);
        }
      }
    }
  });
}

TEST(Selector, ZerosOfBothSignsAreAlike) {
  with_every_instruction_set([] {
    expect_right({filled(300, [](std::size_t i) { return i * i % 3 == 1 ? 0.f : -0.f; })}, 40);
    expect_right({filled(300, [](std::size_t i) { return i == 250 ? 1e-45f : i * i % 3 == 1 ? 0.f : -0.f; })}, 40);
  });
}

TEST(Selector, SelectsFromSortedSpikesAndDenormals) {
  constexpr std::size_t kLength = 3001;
  with_every_instruction_set([] {
    for (const std::size_t k : {1u, 30u, 3000u}) {
      expect_right({filled(kLength, [](std::size_t i) { return static_cast<float>(i); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return -static_cast<float>(kLength - i); })}, k);
      expect_right({filled(kLength, [](std::size_t i) { return i == 2000 ? -1e30f : 1.f; })}, k);
      expect_right(
          {filled(kLength, [](std::size_t i) { return std::bit_cast<float>(static_cast<unsigned>(i * 7919 % 3001)); })},
          k);
      expect_right(
          {filled(kLength, [](std::size_t i) { return i == 7 ? 1e-38f : 1e-45f * static_cast<float>(i % 9); })}, k);
    }
  });
}

TEST(Selector, WhatIsNotFiniteIsChosenAndCounted) {
  constexpr std::size_t kLength = 2000, kChosen = 20;
  with_every_instruction_set([&] {
    for (const std::size_t many : {1u, 19u, 20u, 21u, 500u}) {
      for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
        Vector gradient = normal(kLength, 5);
        for (std::size_t i = 0; i < many; ++i) gradient[3 + i * 3] = value;
        Selector selector;
        Vector residual(kLength);
        EXPECT_EQ(select(selector, {gradient, residual}, kChosen).not_finite, std::min(many, kChosen));
        expect_right({gradient}, kChosen);
      }
    }
    // The selection ranks NaN above infinity.
    Vector gradient(100, kInfinity);
    gradient[60] = kNan;
    EXPECT_EQ(select(gradient, 1).indices[0], 60u);
  });
}

TEST(Selector, AfterNanComesAnOrdinaryGradient) {
  with_every_instruction_set([] {
    for (const float value : {kNan, kInfinity}) {
      Selector selector;
      select(selector, {.gradient = Vector(50, value)}, 3);
      const Vector gradient = normal(5000, 8);
      expect_same(select(selector, {.gradient = gradient}, 50), oracle({.gradient = gradient}, 50));
    }
  });
}

TEST(Selector, ScaleJumpsByAMillion) {
  constexpr std::size_t kLength = 30'000;
  with_every_instruction_set([] {
    std::vector<Vector> gradients;
    for (const float deviation : {1.f, 1e6f, 1.f, 1e-6f, 1e6f, 1e-6f, 1e-6f, 1.f}) {
      gradients.push_back(normal(kLength, static_cast<unsigned>(gradients.size()), deviation));
    }
    for (const std::size_t k : {1u, 300u}) expect_right(gradients, k);
  });
}

TEST(Selector, TheThresholdChangesNothing) {
  with_every_instruction_set([] {
    const Vector gradient = normal(20'000, 3);
    const auto expected = oracle({.gradient = gradient}, 200);
    for (std::uint64_t threshold = 0; threshold <= 0xffffffff; threshold += 0x00c0ffee) {
      Selector selector;
      selector.set_threshold(static_cast<std::uint32_t>(threshold));
      expect_same(select(selector, {.gradient = gradient}, 200), expected);
    }
  });
}

TEST(Selector, HandlesEveryNumberOfCandidatesInAWord) {
  // In each group of 64 elements, 0 to 64 are far above the rest. From the second call on, the selector considers only
  // these elements.
  constexpr std::size_t kWord = 64, kWords = kWord + 1, kSpikes = kWord * kWords / 2;
  const auto spikes = [](std::size_t multiplier, float sign) {
    return filled(kWord * kWords + 5, [=](std::size_t i) {
      const std::size_t word = i / kWord * multiplier % kWords, place = i * 29 % kWord;
      return i < kWord * kWords && place < word ? sign * (1e6F + static_cast<float>(i)) : 0.001F;
    });
  };
  with_every_instruction_set([&] {
    // In ascending order, with few selected elements among many.
    expect_right({spikes(1, 1), spikes(7, -1), spikes(1, 1), spikes(7, 1)}, kSpikes);
  });
}

TEST(Selector, ServesManyLengths) {
  with_every_instruction_set([] {
    Selector selector;
    for (const std::size_t n : {100u, 5000u, 7u, 0u, 30'000u, 30'000u, 1u}) {
      for (const std::size_t k : {n / 2, n / 100, n, std::size_t{1}}) {
        const Vector gradient = normal(n, static_cast<unsigned>(n + k));
        expect_same(select(selector, {.gradient = gradient}, k), oracle({.gradient = gradient}, k));
      }
    }
  });
}

TEST(Selector, GradientsAreScaled) {
  with_every_instruction_set([] {
    for (const float scale : {0.f, 0.1f, -3.f, 1e-30f}) {
      expect_right({normal(777, 1), normal(777, 2)}, 30, scale);
      expect_right({normal(777, 1, 1e6f), normal(777, 2), normal(777, 3, 1e-6f)}, 30, scale);  // by a second pass
    }
  });
}

TEST(Selector, SelectsFromMisalignedVectors) {
  with_every_instruction_set([] {
    constexpr std::size_t kLength = 300, kChosen = 9;
    const Vector gradient = normal(kLength, 11), before = normal(kLength, 12);
    Vector expected_residual = before;
    const auto expected = oracle({.gradient = gradient, .accumulated = expected_residual}, kChosen);
    for (std::size_t offset = 0; offset < 16; ++offset) {
      Vector from(16 + kLength, 77.f), residual(32 + kLength, 77.f);
      std::ranges::copy(gradient, from.begin() + static_cast<std::ptrdiff_t>(15 - offset));
      std::ranges::copy(before, residual.begin() + static_cast<std::ptrdiff_t>(offset));
      const auto inside = std::span(residual).subspan(offset, kLength);
      Selector selector;
      expect_same(select(selector, {std::span(from).subspan(15 - offset, kLength), inside}, kChosen), expected);
      EXPECT_EQ(bits_of(inside), bits_of(expected_residual));
      EXPECT_TRUE(std::ranges::all_of(std::span(residual).first(offset), [](float value) { return value == 77; }));
      EXPECT_TRUE(std::ranges::all_of(std::span(residual).subspan(offset + kLength), [](float v) { return v == 77; }));
    }
  });
}

/// Memory between two inaccessible pages.
class GuardedFloats {
 public:
  static constexpr std::size_t kMost = 8192;
  GuardedFloats() {
    void* const pages = mmap(nullptr, kBytes + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(static_cast<std::byte*>(pages) + page_, kBytes, PROT_READ | PROT_WRITE) != 0) {
      throw std::system_error(errno, std::generic_category(), "guarded pages");
    }
    pages_ = static_cast<std::byte*>(pages);
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  ~GuardedFloats() { munmap(pages_, kBytes + 2 * page_); }
  std::span<float> first(std::size_t count) { return {reinterpret_cast<float*>(pages_ + page_), count}; }
  std::span<float> last(std::size_t count) {
    return {reinterpret_cast<float*>(pages_ + page_ + kBytes) - count, count};
  }

 private:
  static constexpr std::size_t kBytes = kMost * sizeof(float);
  const std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* pages_;
};

TEST(Selector, ReadsNothingBeyondPageEdges) {
  GuardedFloats gradient, accumulated, velocity, values, indices;
  with_every_instruction_set([&] {
    for (const auto at_edge : {&GuardedFloats::first, &GuardedFloats::last}) {
      for (std::size_t n = 1; n <= GuardedFloats::kMost; n += n < 80 ? 1 : 811) {
        const auto from = (gradient.*at_edge)(n), residual = (accumulated.*at_edge)(n), speed = (velocity.*at_edge)(n);
        for (const std::size_t k : {std::size_t{1}, (n + 9) / 10, n}) {
          std::ranges::copy(normal(n, static_cast<unsigned>(n)), from.begin());
          std::ranges::fill(residual, 0.f);
          std::ranges::fill(speed, 0.f);
          Selector selector;
          const auto chosen = (indices.*at_edge)(k);
          selector.select({from, residual, speed}, k, reinterpret_cast<std::uint32_t*>(chosen.data()),
                          (values.*at_edge)(k).data());
        }
      }
    }
  });
}

TEST(Selector, WhatWasChosenIsChosenAgain) {
  with_every_instruction_set([] {
    const auto once = select(normal(9000, 21), 90);
    Vector received(9000);
    for (std::size_t c = 0; c < 90; ++c) received[once.indices[c]] = once.values[c];
    expect_same(select(received, 90), once);
  });
}

TEST(Selector, ASmallerSelectionIsASubsetOfALargerOne) {
  with_every_instruction_set([] {
    const Vector gradient = filled(3000, [](std::size_t i) { return std::round(3 * std::sin(static_cast<float>(i))); });
    auto fewer = select(gradient, 0);
    for (std::size_t k = 1; k <= 3000; k += 37) {
      auto more = select(gradient, k);
      EXPECT_TRUE(std::ranges::includes(more.indices, fewer.indices));
      fewer = std::move(more);
    }
  });
}

TEST(Selector, SignsChangeNothing) {
  with_every_instruction_set([] {
    Vector gradient = normal(5000, 31);
    const auto before = select(gradient, 50);
    for (float& value : gradient) value = -value;
    const auto after = select(gradient, 50);
    EXPECT_EQ(before.indices, after.indices);
    for (std::size_t c = 0; c < 50; ++c) EXPECT_EQ(before.values[c], -after.values[c]);
  });
}

TEST(ErrorFeedback, NothingIsLost) {
  constexpr std::size_t kLength = 12'345;
  with_every_instruction_set([] {
    Selector selector;
    Vector residual(kLength);
    for (unsigned step = 0; step < 10; ++step) {
      const Vector gradient = normal(kLength, step);
      Vector expected = residual;
      for (std::size_t i = 0; i < kLength; ++i) expected[i] += gradient[i];
      const auto sent = select(selector, {gradient, residual}, 123);
      Vector total = residual;
      for (std::size_t c = 0; c < sent.indices.size(); ++c) total[sent.indices[c]] += sent.values[c];
      EXPECT_EQ(bits_of(total), bits_of(expected));
    }
  });
}

TEST(ErrorFeedback, EqualGradientsTakeTurns) {
  constexpr std::size_t kLength = 1000, kChosen = 30, kRound = (kLength + kChosen - 1) / kChosen;
  with_every_instruction_set([&] {
    Selector selector;
    Vector residual(kLength);
    const Vector gradient(kLength, 0.25f);
    std::vector<std::size_t> last(kLength, 0);
    for (std::size_t step = 1; step <= 4 * kRound; ++step) {
      for (const std::uint32_t i : select(selector, {gradient, residual}, kChosen).indices) {
        EXPECT_LE(step - last[i], kRound) << i;
        last[i] = step;
      }
    }
    EXPECT_TRUE(std::ranges::all_of(last, [&](std::size_t step) { return step > 3 * kRound; }));
  });
}

TEST(ErrorFeedback, EverythingChosenLeavesNoResidual) {
  with_every_instruction_set([] {
    Selector selector;
    Vector residual(4567);
    for (unsigned step = 0; step < 3; ++step) {
      const Vector gradient = normal(4567, step);
      EXPECT_EQ(select(selector, {gradient, residual}, gradient.size()).values, gradient);
      EXPECT_EQ(residual, Vector(gradient.size()));
    }
  });
}

TEST(ErrorFeedback, NothingChosenKeepsTheSum) {
  with_every_instruction_set([] {
    Selector selector;
    const Vector gradient = normal(4567, 1);
    Vector residual(gradient.size()), sum(gradient.size());
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(select(selector, {gradient, residual}, 0).indices.empty());
      std::ranges::transform(sum, gradient, sum.begin(), std::plus());
      EXPECT_EQ(residual, sum);
    }
  });
}

TEST(Selector, SelectsFromSixteenMillion) {
  constexpr std::size_t kLength = 1 << 24, kChosen = kLength / 100;
  const Vector gradient = normal(kLength, 1);
  Selector selector;
  for (int call = 0; call < 2; ++call) {
    const auto got = select(selector, {.gradient = gradient}, kChosen);
    std::vector<std::uint64_t> pairs(kLength);
    for (std::size_t i = 0; i < kLength; ++i) {
      pairs[i] = std::uint64_t{key_of(gradient[i])} << 32 | static_cast<std::uint32_t>(~i);
    }
    std::ranges::nth_element(pairs, pairs.begin() + kChosen, std::ranges::greater());
    std::vector<std::uint32_t> expected(kChosen);
    std::transform(pairs.begin(), pairs.begin() + kChosen, expected.begin(),
                   [](std::uint64_t pair) { return ~static_cast<std::uint32_t>(pair); });
    std::ranges::sort(expected);
    EXPECT_TRUE(got.indices == expected);
    EXPECT_TRUE(std::ranges::equal(got.indices, got.values, {}, [&](std::uint32_t i) { return gradient[i]; }));
  }
}

TEST(Selector, AllocatesNothingFromTheSecondCallOn) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers have allocators of their own";
  constexpr std::size_t kLength = 100'000, kChosen = 1000;
  Selector selector;
  Vector residual(kLength), values(kChosen);
  std::vector<std::uint32_t> indices(kChosen);
  const Vector gradient = normal(kLength, 1);
  selector.select({gradient, residual}, kChosen, indices.data(), values.data());
  const int before = allocations;
  for (const float scale : {1.f, 1e6f, 1e-6f}) {
    selector.select({.gradient = gradient, .accumulated = residual, .scale = scale}, kChosen, indices.data(),
                    values.data());
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace collectives
