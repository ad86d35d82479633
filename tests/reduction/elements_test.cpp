// Tests that the arithmetic of GPU kernels, element by element, gives the same bits as the reduction on the CPU,
// fold(). The other test, reduction_test, compares fold() with an oracle.
#include "reduction/elements.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/grid.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

constexpr std::size_t kCount = 4099;
constexpr int kSources = 5;

/// Returns the elements of a random vector, as bytes of any bits. Floats that are NaN are replaced by one NaN, because
/// the payload of other NaNs in a result is unspecified.
template <class T>
std::vector<std::byte> any_values(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * sizeof(T));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if constexpr (elements::kFloating<T>) {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
      const auto wide = static_cast<elements::Combined<T>>(value);
      if (wide != wide) value = static_cast<T>(std::numeric_limits<elements::Combined<T>>::quiet_NaN());
      std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
    }
  }
  return bytes;
}

template <class T>
bool same(const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, sizeof(T)) == 0) return true;
  if constexpr (elements::kFloating<T>) {
    T x, y;
    std::memcpy(&x, a, sizeof(T));
    std::memcpy(&y, b, sizeof(T));
    const auto wide_x = static_cast<elements::Combined<T>>(x), wide_y = static_cast<elements::Combined<T>>(y);
    return wide_x != wide_x && wide_y != wide_y;
  }
  if constexpr (elements::kComplex<T>) {
    using Part = decltype(T::real);
    return same<Part>(a, b) && same<Part>(a + sizeof(Part), b + sizeof(Part));
  }
  return false;
}

/// Compares fold() with a kernel on random contributions. An element of the reduction is `times` elements of the
/// kernel.
template <class Kernel>
void check_kernel(const Kernel& kernel, const ReduceOp& op, DataType type, int finish_ranks, std::size_t times) {
  using T = typename Kernel::Stored;
  const std::size_t elements = kCount * times;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<Source> sources;
  for (unsigned s = 0; s < kSources; ++s) inputs.push_back(any_values<T>(elements, s + 1));
  for (std::size_t s = 0; s < kSources; ++s)  // source 2 is a partial result, the others are plain contributions
    sources.push_back({inputs[s].data(), s != 2});
  std::vector<std::byte> expected(elements * sizeof(T));
  fold(op, type, sources, expected.data(), kCount, finish_ranks);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto term = [&](std::size_t s) {
      T stored;
      std::memcpy(&stored, &inputs[s][i * sizeof(T)], sizeof(T));
      return kernel.term(stored, sources[s].unreduced);
    };
    auto wide = term(0);
    for (std::size_t s = 1; s < kSources; ++s) wide = kernel.combine(wide, term(s));
    const T got = kernel.result(wide);
    ASSERT_TRUE(same<T>(reinterpret_cast<const std::byte*>(&got), &expected[i * sizeof(T)])) << "element " << i;
  }
}

class Elements : public testing::TestWithParam<DataType> {};

TEST_P(Elements, AreWhatVectorsGive) {
  const DataType type = GetParam();
  for (const ReduceOp::Kind kind : kReduceKinds) {
    const ReduceOp op = kind == ReduceOp::Kind::pre_scaled_sum ? ReduceOp::pre_scaled_sum(0.3) : ReduceOp::of(kind);
    if (!supports(type, op) || kind == ReduceOp::Kind::user) continue;
    SCOPED_TRACE(std::string(to_string(kind)));
    for (const int finish_ranks : {0, kSources, 7}) {
      if (finish_ranks == 0 && needs_direct(op, type, false)) continue;
      const bool found = elements::with_kernel_for(
          op, type, finish_ranks, finish_ranks == 0,
          [&](const auto& kernel, std::size_t times) { check_kernel(kernel, op, type, finish_ranks, times); });
      EXPECT_TRUE(found);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(AllTypes, Elements, testing::ValuesIn(kDataTypes),
                         [](const auto& row) { return std::string(to_string(row.param)); });

TEST(Elements, NoKernelForOpsThatTheTypeLacksOrAUserOp) {
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  const auto none = [](const auto&, std::size_t) { FAIL(); };
  EXPECT_FALSE(elements::with_kernel_for(ReduceOp::pre_scaled_sum(2), DataType::i32, 1, false, none));
  EXPECT_FALSE(elements::with_kernel_for(ReduceOp::user(op), DataType::f32, 1, false, none));
  EXPECT_FALSE(elements::with_kernel_for(ReduceOp::sum, DataType::f32_index, 1, false, none));
  EXPECT_FALSE(elements::with_kernel_for(ReduceOp::average, DataType::boolean, 1, false, none));
  EXPECT_FALSE(elements::with_kernel_for(ReduceOp::min, DataType::complex64, 1, false, none));
}

TEST(Pieces, EveryElementIsInOneAndVectorsBeginAtSixteen) {
  for (const std::size_t bytes : {1U, 2U, 4U, 8U, 16U}) {
    for (std::uintptr_t lies = 0; lies < cuda::kVectorBytes; lies += bytes) {
      for (std::size_t count = 0; count < 70; ++count) {
        const cuda::Pieces pieces = cuda::pieces_of(lies, count, bytes);
        std::vector<int> seen(count);
        const std::size_t lanes = cuda::kVectorBytes / bytes;
        for (std::size_t v = 0; v < pieces.vectors; ++v) {
          const std::size_t at = pieces.lead + v * lanes;
          EXPECT_EQ((lies + at * bytes) % cuda::kVectorBytes, 0U);
          for (std::size_t l = 0; l < lanes; ++l) ++seen.at(at + l);
        }
        for (std::size_t s = 0; s < pieces.lead + pieces.tail; ++s) ++seen.at(cuda::single(pieces, count, s));
        EXPECT_EQ(seen, std::vector<int>(count, 1)) << count << " of " << bytes << " bytes at " << lies;
      }
    }
  }
}

TEST(Pieces, VectorsThatLieUnlikeAreTakenSingly) {
  const std::byte memory[64] = {};
  const auto address = reinterpret_cast<std::uintptr_t>(memory) % cuda::kVectorBytes;
  EXPECT_EQ(cuda::alike(address, memory + 16), address);
  EXPECT_EQ(cuda::alike(address, memory + 4), cuda::kUnlike);
  EXPECT_EQ(cuda::pieces_of(cuda::kUnlike, 100, 4).lead, 100U);
}

}  // namespace
}  // namespace collectives
