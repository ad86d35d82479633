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

/// Returns random elements of any bits. Floats that are NaN are replaced by one NaN, because the payload of other NaNs
/// in a result is unspecified.
template <class T>
std::vector<T> any_values(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kCount);
  for (T& value : values) {
    const std::uint64_t bits = random();
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    if constexpr (elements::kFloating<T>) {
      const auto wide = static_cast<elements::Combined<T>>(value);
      if (wide != wide) value = static_cast<T>(std::numeric_limits<elements::Combined<T>>::quiet_NaN());
    }
  }
  return values;
}

template <class T>
void expect_bits(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if constexpr (elements::kFloating<T>) {
      const auto a = static_cast<elements::Combined<T>>(got[i]), b = static_cast<elements::Combined<T>>(expected[i]);
      if (a != a && b != b) continue;
    }
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0) << "element " << i;
  }
}

class Elements : public testing::TestWithParam<DataType> {};

TEST_P(Elements, AreWhatVectorsGive) {
  elements::with_type(GetParam(), [](auto element) {
    using T = decltype(element);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                              ReduceOp::pre_scaled_sum(0.3)}) {
      if (!supports(data_type_v<T>, op)) continue;
      SCOPED_TRACE(std::string(to_string(op.kind())));
      std::vector<std::vector<T>> inputs;
      std::vector<Source> sources;
      for (unsigned s = 0; s < kSources; ++s) inputs.push_back(any_values<T>(s + 1));
      for (std::size_t s = 0; s < kSources; ++s)  // source 2 is a partial result, the others are plain contributions
        sources.push_back({reinterpret_cast<const std::byte*>(inputs[s].data()), s != 2});
      for (const int finish_ranks : {0, kSources, 7}) {
        if (finish_ranks == 0 && needs_direct(op, data_type_v<T>, false)) continue;
        std::vector<T> expected(kCount), got(kCount);
        fold(op, data_type_v<T>, sources, reinterpret_cast<std::byte*>(expected.data()), kCount, finish_ranks);
        const bool found = elements::with_kernel<T>(op, finish_ranks, finish_ranks == 0, [&](const auto& kernel) {
          for (std::size_t i = 0; i < kCount; ++i) {
            auto wide = kernel.term(inputs[0][i], true);
            for (std::size_t s = 1; s < kSources; ++s)
              wide = kernel.combine(wide, kernel.term(inputs[s][i], sources[s].unreduced));
            got[i] = kernel.result(wide);
          }
        });
        EXPECT_TRUE(found);
        expect_bits(got, expected);
      }
    }
  });
}
INSTANTIATE_TEST_SUITE_P(AllTypes, Elements, testing::ValuesIn(kDataTypes),
                         [](const auto& row) { return std::string(to_string(row.param)); });

TEST(Elements, NoKernelForAFactorOfIntegersOrAUserOp) {
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  const auto none = [](const auto&) { FAIL(); };
  EXPECT_FALSE(elements::with_kernel<std::int32_t>(ReduceOp::pre_scaled_sum(2), 1, false, none));
  EXPECT_FALSE(elements::with_kernel<float>(ReduceOp::user(op), 1, false, none));
}

TEST(Pieces, EveryElementIsInOneAndVectorsBeginAtSixteen) {
  for (const std::size_t bytes : {1U, 2U, 4U, 8U}) {
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
