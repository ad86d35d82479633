// Tests of reductions, compared with an oracle that computes each element without vector instructions
// (support/reduction_oracle.hpp). The tests run with every instruction set of this processor.
#include "reduction/reduction.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "reduction/dispatch.hpp"
#include "support/reduction_oracle.hpp"

namespace collectives {
namespace {

std::vector<ReduceOp> ops_of(DataType type) {
  std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max};
  if (is_floating(type)) ops.push_back(ReduceOp::pre_scaled_sum(0.3));
  return ops;
}

template <class T>
class Reduction : public ::testing::Test {};
using AllTypes =
    ::testing::Types<float, double, float16, bfloat16, float8_e4m3, float8_e5m2, std::int8_t, std::uint8_t,
                     std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
struct TypeName {
  template <class T>
  static std::string GetName(int) {
    return std::string(to_string(data_type_v<T>));
  }
};
TYPED_TEST_SUITE(Reduction, AllTypes, TypeName);

TYPED_TEST(Reduction, HandlesOneToSeventeenSourcesAndOddCounts) {
  for (const ReduceOp& op : ops_of(data_type_v<TypeParam>)) {
    for (std::size_t sources = 1; sources <= 17; ++sources) {
      for (const std::size_t count : Sizes{0, 1, 3, 7, 31, 65, 1031}) {
        check_against_oracle(op, Vectors<TypeParam>::random(sources, count, 0, sources * 2000 + count));
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(Reduction, HandlesMoreElementsThanOneBlock) {
  for (const ReduceOp& op : ops_of(data_type_v<TypeParam>)) {
    for (const std::size_t sources : Sizes{1, 2, 5, 11}) {
      check_against_oracle(op, Vectors<TypeParam>::random(sources, 8209, 0, sources));
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Reduction, HandlesUnalignedSources) {
  for (const ReduceOp& op : ops_of(data_type_v<TypeParam>)) {
    for (const std::size_t misalignment : Sizes{1, 3, 7}) {
      for (const std::size_t sources : Sizes{1, 2, 3, 4, 6, 9}) {
        check_against_oracle(op, Vectors<TypeParam>::random(sources, 517, misalignment, misalignment));
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(Reduction, WorksInPlaceWithEachSource) {
  for (const ReduceOp& op : ops_of(data_type_v<TypeParam>)) {
    for (const std::size_t sources : Sizes{1, 2, 3, 4, 5, 8, 17}) {
      for (std::size_t place = 0; place < sources; ++place) {
        check_against_oracle(op, Vectors<TypeParam>::random(sources, 1037, place % 2, place), static_cast<int>(place));
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(Reduction, PartialResultsInRankOrderMakeTheWhole) {
  using T = TypeParam;
  if (kSmallFloat<T>) return;  // a partial result in 16 or 8 bits would be rounded once more
  const int ranks = 7;
  for (const ReduceOp& op : ops_of(data_type_v<T>)) {
    if (op.kind() == ReduceOp::Kind::average && !kFloating<T>) continue;  // a partial sum of integers would wrap around
    Vectors<T> inputs = Vectors<T>::random(ranks, 301, 0, 5), partial(1, 301), whole(1, 301);
    const std::vector<Source> sources = inputs.sources();
    fold_everywhere(op, data_type_v<T>, std::span(sources).first(3), {partial.data(0)}, 301, 0);
    for (std::size_t s = 3; s < ranks; ++s) {
      const Source next[] = {{partial.data(0), false}, sources[s]};
      fold_everywhere(op, data_type_v<T>, next, {partial.data(0)}, 301, s + 1 == ranks ? ranks : 0);
    }
    fold_vectors(op, inputs, whole.data(0));
    for (std::size_t i = 0; i < 301; ++i) {
      ASSERT_TRUE(same_bits(partial.get(0, i), whole.get(0, i))) << to_string(op.kind()) << ", element " << i;
    }
  }
}

TYPED_TEST(Reduction, OneRawSourceWithoutFinishIsItsPartialResult) {
  using T = TypeParam;
  Vectors<T> input = Vectors<T>::random(1, 99, 1, 9), output(1, 99);
  for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
    fold_everywhere(op, data_type_v<T>, input.sources(), {output.data(0)}, 99, 0);
    EXPECT_EQ(0, std::memcmp(input.data(0), output.data(0), 99 * sizeof(T))) << to_string(op.kind());
  }
}

TYPED_TEST(Reduction, MeanOfOnesIsOne) {
  using T = TypeParam;
  const T one = static_cast<T>(static_cast<Wide<T>>(1));
  Vectors<T> ones(1, 19), output(1, 19);
  for (std::size_t i = 0; i < 19; ++i) ones.set(0, i, one);
  for (int ranks = 1; ranks <= 300; ++ranks) {
    const std::vector<Source> sources(static_cast<std::size_t>(ranks), Source{ones.data(0), true});
    fold_everywhere(ReduceOp::average, data_type_v<T>, sources, {output.data(0)}, 19, ranks);
    for (std::size_t i = 0; i < 19; ++i) ASSERT_TRUE(same_bits(output.get(0, i), one)) << ranks << " ranks";
  }
}

/// A page of memory between two inaccessible pages.
class GuardedPage {
 public:
  GuardedPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* const pages = mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(static_cast<std::byte*>(pages) + size_, size_, PROT_READ | PROT_WRITE) != 0) {
      throw std::system_error(errno, std::generic_category(), "guarded page");
    }
    pages_ = static_cast<std::byte*>(pages);
  }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  ~GuardedPage() { munmap(pages_, 3 * size_); }
  std::byte* first(std::size_t) { return pages_ + size_; }
  std::byte* last(std::size_t bytes) { return pages_ + 2 * size_ - bytes; }

 private:
  std::size_t size_;
  std::byte* pages_;
};

TYPED_TEST(Reduction, ReadsNothingBeyondPageEdges) {
  using T = TypeParam;
  constexpr std::size_t kSources = 3;
  std::array<GuardedPage, kSources> inputs;
  std::array<GuardedPage, 2> outputs;
  for (const auto at_edge : {&GuardedPage::first, &GuardedPage::last}) {
    for (std::size_t count = 1; count * sizeof(T) <= 4096; count += count < 80 ? 1 : 61) {
      const std::size_t bytes = count * sizeof(T);
      Vectors<T> values = Vectors<T>::random(kSources, count, 0, count);
      std::vector<Source> sources;
      for (std::size_t v = 0; v < kSources; ++v) {
        std::byte* const data = (inputs[v].*at_edge)(bytes);
        std::memcpy(data, values.data(v), bytes);
        sources.push_back({data, true});
      }
      const Outs outs{(outputs[0].*at_edge)(bytes), (outputs[1].*at_edge)(bytes)};
      for (const ReduceOp& op : ops_of(data_type_v<T>)) {
        for (const Stores stores : {Stores::cached, Stores::streaming, Stores::streaming_but_first}) {
          fold_everywhere(op, data_type_v<T>, sources, outs, count, kSources, stores);
          for (std::size_t i = 0; i < count; ++i) {
            T result;
            std::memcpy(&result, outs[1] + i * sizeof(T), sizeof(T));
            ASSERT_TRUE(same_value(result, oracle(op, values.column(i)))) << to_string(op.kind()) << ", element " << i;
          }
          ASSERT_EQ(0, std::memcmp(outs[0], outs[1], bytes));
        }
      }
    }
  }
}

/// A vector between guard bytes, which show stores outside the vector.
template <class T>
class Fenced {
 public:
  Fenced(std::size_t count, std::size_t misalignment)
      : bytes_(count * sizeof(T) + misalignment + 2 * kMargin, kFence), begin_(kMargin), size_(count * sizeof(T)) {
    // `misalignment` counts from the beginning of a cache line, so that all runs have equal alignment.
    begin_ += to_next_line(bytes_.data() + begin_) + misalignment;
  }
  std::byte* data() { return bytes_.data() + begin_; }
  bool intact() const {
    const auto is_fence = [](std::byte byte) { return byte == kFence; };
    return std::ranges::all_of(std::span(bytes_).first(begin_), is_fence) &&
           std::ranges::all_of(std::span(bytes_).subspan(begin_ + size_), is_fence);
  }

 private:
  static constexpr std::size_t kMargin = 256;
  static constexpr std::byte kFence{0xa5};
  std::vector<std::byte> bytes_;
  std::size_t begin_, size_;
};

TYPED_TEST(Reduction, EveryOutGetsTheResultAlsoWhenSourcesAreAmongThem) {
  using T = TypeParam;
  constexpr std::size_t kSources = 3;
  for (const ReduceOp& op : ops_of(data_type_v<T>)) {
    for (const std::size_t count : Sizes{1, 5, 40, 4096 / sizeof(T), 3001, 9001}) {
      for (const std::size_t misalignment : Sizes{0, sizeof(T), 1, 13}) {
        for (const Stores stores : {Stores::cached, Stores::streaming, Stores::streaming_but_first}) {
          Vectors<T> values = Vectors<T>::random(kSources, count, 0, count);
          // Three sources: the first and the last have equal alignment, and the second has another one.
          Fenced<T> in[] = {{count, misalignment}, {count, 3}, {count, misalignment}};
          Fenced<T> other[] = {{count, misalignment}, {count, misalignment}, {count, misalignment + 7}};
          std::vector<Source> sources;
          for (std::size_t v = 0; v < kSources; ++v) {
            std::memcpy(in[v].data(), values.data(v), count * sizeof(T));
            sources.push_back({in[v].data(), true});
          }
          const Outs outs{other[0].data(), in[0].data(), other[1].data(), other[2].data(), in[2].data()};
          fold_everywhere(op, data_type_v<T>, sources, outs, count, kSources, stores);
          for (std::size_t i = 0; i < count; ++i) {
            T result;
            std::memcpy(&result, outs[0] + i * sizeof(T), sizeof(T));
            ASSERT_TRUE(same_value(result, oracle(op, values.column(i)))) << to_string(op.kind()) << ", element " << i;
          }
          for (const std::byte* out : outs) ASSERT_EQ(0, std::memcmp(out, outs[0], count * sizeof(T)));
          EXPECT_EQ(0, std::memcmp(in[1].data(), values.data(1), count * sizeof(T)));
          for (const Fenced<T>& vector : in) EXPECT_TRUE(vector.intact());
          for (const Fenced<T>& vector : other) EXPECT_TRUE(vector.intact());
        }
      }
    }
  }
}

TYPED_TEST(Reduction, WritesMoreOutsThanAreStreamed) {
  using T = TypeParam;
  constexpr std::size_t kCount = 3001;
  for (const std::size_t ranks : Sizes{128, 129, 200}) {
    for (const Stores stores : {Stores::streaming, Stores::streaming_but_first}) {
      Vectors<T> inputs = Vectors<T>::random(2, kCount, 0, ranks), outputs(ranks, kCount), expected(1, kCount);
      Outs outs;
      for (std::size_t v = 0; v < ranks; ++v) outs.push_back(outputs.data(v));
      fold_everywhere(ReduceOp::sum, data_type_v<T>, inputs.sources(), outs, kCount, 2, stores);
      fold_vectors(ReduceOp::sum, inputs, expected.data(0));
      for (const std::byte* out : outs) ASSERT_EQ(0, std::memcmp(out, expected.data(0), kCount * sizeof(T)));
    }
  }
}

/// Reduces elements of any bits: denormals, zeros of both signs, infinities, and NaN with any payload. The
/// contributions to one element contain at most one NaN. If one is NaN, the others are finite, so that no second NaN
/// arises. The payload of a sum of several NaNs is unspecified.
TYPED_TEST(Reduction, HandlesAnyBits) {
  using T = TypeParam;
  std::mt19937_64 random(11);
  const auto draw = [&] {
    std::uint64_t bits = random();
    if (random() % 4 == 0) bits &= 0x800f000f800f800f;  // clears exponent bits: small numbers
    if (random() % 4 == 0) bits |= 0x7ff07ff07f807c00;  // sets all exponent bits: NaN and infinities
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &bits, sizeof(T));
    return std::bit_cast<T>(bytes);
  };
  for (const std::size_t sources : Sizes{1, 2, 3, 5, 9, 64}) {
    Vectors<T> inputs(sources, 2003);
    for (std::size_t i = 0; i < inputs.count(); ++i) {
      const bool with_nan = kFloating<T> && random() % 4 == 0;
      const std::size_t place = random() % sources;
      for (std::size_t v = 0; v < sources; ++v) {
        const bool nan = with_nan && v == place;
        T value = draw();
        while (is_nan(value) != nan) value = draw();
        inputs.set(v, i, with_nan && !nan ? random_element<T>(random) : value);
      }
    }
    for (const ReduceOp& op : ops_of(data_type_v<T>)) {
      check_against_oracle(op, inputs);
      if (this->HasFatalFailure()) return;
    }
  }
}

/// Reduces special values in every order of the sources, and compares the bits of the results.
template <class T>
void check_min_max(const std::vector<Wide<T>>& values, T least, T greatest) {
  std::vector<Wide<T>> order = values;
  std::ranges::sort(order, [](auto a, auto b) { return std::isnan(a) < std::isnan(b) || a < b; });
  for (std::size_t turn = 0; turn < order.size(); ++turn) {
    std::ranges::rotate(order, order.begin() + 1);
    Vectors<T> inputs(order.size(), 37), output(1, 37);
    for (std::size_t v = 0; v < order.size(); ++v) {
      for (std::size_t i = 0; i < 37; ++i) inputs.set(v, i, static_cast<T>(order[v]));
    }
    fold_vectors(ReduceOp::min, inputs, output.data(0));
    for (std::size_t i = 0; i < 37; ++i) ASSERT_TRUE(same_bits(output.get(0, i), least)) << "min, turn " << turn;
    fold_vectors(ReduceOp::max, inputs, output.data(0));
    for (std::size_t i = 0; i < 37; ++i) ASSERT_TRUE(same_bits(output.get(0, i), greatest)) << "max, turn " << turn;
  }
}

template <class T>
class FloatReduction : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, double, float16, bfloat16, float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(FloatReduction, FloatTypes, TypeName);

TYPED_TEST(FloatReduction, NanAnywhereMakesMinAndMaxTheCanonicalNan) {
  using T = TypeParam;
  using W = Wide<T>;
  const W nan = std::numeric_limits<W>::quiet_NaN(), infinity = std::numeric_limits<W>::infinity();
  check_min_max<T>({nan, 1}, canonical_nan<T>(), canonical_nan<T>());
  check_min_max<T>({-nan, 1, infinity}, canonical_nan<T>(), canonical_nan<T>());
  check_min_max<T>({nan, -infinity, 1, 0}, canonical_nan<T>(), canonical_nan<T>());
  check_min_max<T>({-nan, -1, 2, 3, 4, 5}, canonical_nan<T>(), canonical_nan<T>());
  check_min_max<T>({-nan}, canonical_nan<T>(), canonical_nan<T>());
}

TYPED_TEST(FloatReduction, NegativeZeroIsLessThanZero) {
  using T = TypeParam;
  using W = Wide<T>;
  check_min_max<T>({W(-0.0), W(0.0)}, T(W(-0.0)), T(W(0.0)));
  check_min_max<T>({W(0.0), W(-0.0), W(0.0), W(-0.0), W(-0.0)}, T(W(-0.0)), T(W(0.0)));
}

TYPED_TEST(FloatReduction, InfinitiesAndDenormalsHaveTheirPlaceInMinAndMax) {
  using T = TypeParam;
  using W = Wide<T>;
  const W infinity = std::numeric_limits<W>::infinity();
  check_min_max<T>({-infinity, 1, infinity, -1, 0}, T(-infinity), T(infinity));
  T denormal{};
  reinterpret_cast<unsigned char*>(&denormal)[0] = 1;  // the lowest byte of a little-endian value
  check_min_max<T>({static_cast<W>(denormal), W(0.0)}, T(W(0.0)), denormal);
}

TYPED_TEST(FloatReduction, NanAndInfinityTravelThroughSums) {
  using T = TypeParam;
  using W = Wide<T>;
  const W infinity = std::numeric_limits<W>::infinity(), nan = std::numeric_limits<W>::quiet_NaN();
  const std::array<std::array<W, 3>, 4> columns{
      {{infinity, 1, 2}, {infinity, -infinity, 1}, {1, nan, 2}, {-0.0, -0.0, -0.0}}};
  Vectors<T> inputs(3, 4);
  for (std::size_t v = 0; v < 3; ++v) {
    for (std::size_t i = 0; i < 4; ++i) inputs.set(v, i, static_cast<T>(columns[i][v]));
  }
  for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::pre_scaled_sum(2)}) {
    check_against_oracle(op, inputs);
  }
}

TYPED_TEST(FloatReduction, SumIsWithinItsErrorBoundOfTheSumInFloat64) {
  using T = TypeParam;
  using W = Wide<T>;
  const std::size_t ranks = 13;
  Vectors<T> inputs = Vectors<T>::random(ranks, 2000, 0, 77), output(1, 2000);
  fold_vectors(ReduceOp::sum, inputs, output.data(0));
  // Rounding of each addition in the accumulator, then of the result in the element type (3 to 53 bits).
  const double result_bits = std::is_same_v<T, float8_e5m2>   ? 3
                             : std::is_same_v<T, float8_e4m3> ? 4
                             : std::is_same_v<T, bfloat16>    ? 8
                             : std::is_same_v<T, float16>     ? 11
                             : sizeof(T) == 4                 ? 24
                                                              : 53;
  for (std::size_t i = 0; i < 2000; ++i) {
    double sum = 0, magnitudes = 0;
    for (const T value : inputs.column(i)) {
      sum += static_cast<double>(static_cast<W>(value));
      magnitudes += std::abs(static_cast<double>(static_cast<W>(value)));
    }
    const double bound = ranks * static_cast<double>(std::numeric_limits<W>::epsilon()) * magnitudes +
                         std::ldexp(std::abs(sum), static_cast<int>(-result_bits));
    ASSERT_NEAR(static_cast<double>(static_cast<W>(output.get(0, i))), sum, bound);
  }
}

TYPED_TEST(FloatReduction, OnlyRawSourcesAreScaled) {
  using T = TypeParam;
  Vectors<T> inputs = Vectors<T>::random(6, 70, 0, 3), output(1, 70);
  std::vector<Source> sources = inputs.sources();
  for (std::size_t s = 1; s < sources.size(); s += 2) sources[s].unreduced = false;
  fold_everywhere(ReduceOp::pre_scaled_sum(0.25), data_type_v<T>, sources, {output.data(0)}, 70, 6);
  for (std::size_t i = 0; i < 70; ++i) {
    Wide<T> sum = 0;
    for (std::size_t s = 0; s < 6; ++s) {
      sum += static_cast<Wide<T>>(inputs.get(s, i)) * static_cast<Wide<T>>(s % 2 == 0 ? 0.25 : 1.0);
    }
    ASSERT_TRUE(same_bits(output.get(0, i), static_cast<T>(sum))) << "element " << i;
  }
}

template <class T>
class SixteenBitReduction : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(SixteenBitReduction, SixteenBitTypes, TypeName);

template <class T>
T of_bits(unsigned bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TYPED_TEST(SixteenBitReduction, EveryValueIsConvertedAsInTypesHpp) {
  using T = TypeParam;
  constexpr std::size_t kAll = 1 << 16;
  Vectors<T> inputs(2, kAll), output(1, kAll);
  // Products reach every exponent, ties, denormals, overflow; the factor one shows the conversions alone.
  for (const unsigned factor : {0x3c00u, 0x3f80u, 0x3c01u, 0x0001u, 0x8401u, 0x2fffu, 0x3555u, 0x4248u, 0x7bffu}) {
    for (unsigned bits = 0; bits < kAll; ++bits) {
      inputs.set(0, bits, of_bits<T>(bits));
      inputs.set(1, bits, of_bits<T>(factor));
    }
    fold_vectors(ReduceOp::product, inputs, output.data(0));
    for (unsigned bits = 0; bits < kAll; ++bits) {
      const T expected(static_cast<float>(of_bits<T>(bits)) * static_cast<float>(of_bits<T>(factor)));
      ASSERT_EQ(output.get(0, bits).bits, expected.bits) << std::hex << bits << " x " << factor;
    }
  }
}

TYPED_TEST(SixteenBitReduction, SumsAreRoundedOnce) {
  using T = TypeParam;
  // 1 + 2^-12 + 2^-12 + ... would stay 1 in the 16-bit type. 4096 of these terms make one more.
  Vectors<T> values(2, 1), output(1, 1);
  values.set(0, 0, T(1.0f));
  values.set(1, 0, T(0x1p-12f));
  std::vector<Source> sources(4097, Source{values.data(1), true});
  sources.front() = {values.data(0), true};
  fold_everywhere(ReduceOp::sum, data_type_v<T>, sources, {output.data(0)}, 1, 4097);
  EXPECT_EQ(static_cast<float>(output.get(0, 0)), 2.0f);
}

TEST(IntegerReduction, AverageIsTheExactMeanTruncatedTowardZero) {
  Vectors<std::int64_t> inputs(3, 2);
  const std::int64_t greatest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t v = 0; v < 3; ++v) inputs.set(v, 0, v == 0 ? greatest - 2 : greatest);
  for (std::size_t v = 0; v < 3; ++v) inputs.set(v, 1, v == 0 ? -5 : 0);
  Vectors<std::int64_t> output(1, 2);
  fold_vectors(ReduceOp::average, inputs, output.data(0));
  EXPECT_EQ(output.get(0, 0), greatest - 1);  // (3 max - 2) / 3
  EXPECT_EQ(output.get(0, 1), -1);
}

TEST(IntegerReduction, AverageOfExtremesOverManyRanks) {
  for (const std::size_t ranks : Sizes{1, 2, 3, 5, 17, 1000}) {
    Vectors<std::int32_t> inputs(ranks, 3), output(1, 3);
    for (std::size_t v = 0; v < ranks; ++v) {
      inputs.set(v, 0, std::numeric_limits<std::int32_t>::min());
      inputs.set(v, 1, std::numeric_limits<std::int32_t>::max());
      inputs.set(v, 2, std::numeric_limits<std::int32_t>::max() - (v == 0 ? 1 : 0));  // a hair below a whole number
    }
    fold_vectors(ReduceOp::average, inputs, output.data(0));
    EXPECT_EQ(output.get(0, 0), std::numeric_limits<std::int32_t>::min());
    EXPECT_EQ(output.get(0, 1), std::numeric_limits<std::int32_t>::max());
    EXPECT_EQ(output.get(0, 2), std::numeric_limits<std::int32_t>::max() - 1);
  }
}

TEST(IntegerReduction, AverageOfBytesOverMoreRanksThanAFloatCounts) {
  constexpr std::size_t kRanks = 70001, kCount = 37;
  Vectors<std::uint8_t> all(1, kCount), output(1, kCount);
  Vectors<std::int8_t> least(1, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    all.set(0, i, 255);
    least.set(0, i, -128);
  }
  fold_everywhere(ReduceOp::average, DataType::u8, std::vector<Source>(kRanks, {all.data(0), true}), {output.data(0)},
                  kCount, kRanks);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(output.get(0, i), 255);
  fold_everywhere(ReduceOp::average, DataType::i8, std::vector<Source>(kRanks, {least.data(0), true}), {output.data(0)},
                  kCount, kRanks);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(output.get(0, i), 128);
}

TEST(IntegerReduction, AverageOfBytesAHairBelowAWholeNumber) {
  constexpr std::size_t kRanks = 65536;
  Vectors<std::uint8_t> values(2, 1), output(1, 1);
  values.set(0, 0, 255);
  values.set(1, 0, 254);
  std::vector<Source> sources(kRanks, Source{values.data(0), true});
  sources.back() = {values.data(1), true};
  fold_everywhere(ReduceOp::average, DataType::u8, sources, {output.data(0)}, 1, kRanks);
  EXPECT_EQ(output.get(0, 0), 254);
}

TEST(Copy, WritesEveryOutAtAnySizeAndAlignment) {
  for (const Stores stores : {Stores::cached, Stores::streaming, Stores::streaming_but_first}) {
    for (const std::size_t bytes : Sizes{0, 1, 2, 7, 63, 64, 65, 500, 4095, 4096, 4097, 100003}) {
      for (const std::size_t misalignment : Sizes{0, 1, 16, 63}) {
        Vectors<std::uint8_t> in = Vectors<std::uint8_t>::random(1, bytes, 5, bytes);
        Fenced<std::uint8_t> copies[] = {{bytes, misalignment}, {bytes, misalignment}, {bytes, 9}};
        for (std::size_t outs_used = 1; outs_used <= 3; ++outs_used) {
          Outs outs;
          for (std::size_t c = 0; c < outs_used; ++c) {
            outs.push_back(copies[c].data());
            std::memset(copies[c].data(), 0, bytes);
          }
          with_every_instruction_set(outs, bytes, [&] { copy(outs, in.data(0), bytes, stores); });
          for (const std::byte* out : outs)
            EXPECT_TRUE(std::ranges::equal(std::span(out, bytes), std::span(in.data(0), bytes)));
          for (const auto& vector : copies) EXPECT_TRUE(vector.intact());
        }
      }
    }
  }
}

TEST(Copy, KeepsTheSourceIfItIsAlsoAnOut) {
  for (const Stores stores : {Stores::cached, Stores::streaming, Stores::streaming_but_first}) {
    for (const std::size_t bytes : Sizes{9, 5003}) {
      Vectors<std::uint8_t> vectors = Vectors<std::uint8_t>::random(2, bytes, 0, bytes), original = vectors;
      copy(Outs{vectors.data(0)}, vectors.data(0), bytes, stores);
      EXPECT_EQ(0, std::memcmp(vectors.data(0), original.data(0), bytes));
      copy(Outs{vectors.data(0), vectors.data(1)}, vectors.data(0), bytes, stores);
      EXPECT_EQ(0, std::memcmp(vectors.data(0), original.data(0), bytes));
      EXPECT_EQ(0, std::memcmp(vectors.data(1), original.data(0), bytes));
    }
  }
}

/// x . y = 2x + y: neither commutative nor associative, so that any change of order shows.
const UserOp kShiftAndAdd{"shift_and_add",
                          [](const void* next, void* accumulated, std::size_t count, DataType type) {
                            ASSERT_EQ(type, DataType::i32);
                            const auto* from = static_cast<const std::int32_t*>(next);
                            auto* to = static_cast<std::int32_t*>(accumulated);
                            for (std::size_t i = 0; i < count; ++i) to[i] = 2 * to[i] + from[i];
                          },
                          false};

TEST(UserReduction, SourcesAreCombinedInTheOrderGivenWhereverTheResultGoes) {
  for (const std::size_t ranks : Sizes{1, 2, 3, 9}) {
    for (const std::size_t count : Sizes{1, 2047, 5000}) {
      for (const std::size_t misalignment : Sizes{0, 1}) {
        for (int place = -1; place < static_cast<int>(ranks); ++place) {
          Vectors<std::int32_t> inputs(ranks, count, misalignment), output(1, count, misalignment);
          for (std::size_t v = 0; v < ranks; ++v) {
            for (std::size_t i = 0; i < count; ++i) inputs.set(v, i, static_cast<std::int32_t>((v + 1) * 100 + i));
          }
          Vectors<std::int32_t> original = inputs;
          std::byte* const out = place < 0 ? output.data(0) : inputs.data(static_cast<std::size_t>(place));
          fold_vectors(ReduceOp::user(kShiftAndAdd), inputs, out);
          for (std::size_t i = 0; i < count; ++i) {
            std::int32_t expected = original.get(0, i), result = 0;
            for (std::size_t v = 1; v < ranks; ++v) expected = 2 * expected + original.get(v, i);
            std::memcpy(&result, out + i * sizeof(result), sizeof(result));
            ASSERT_EQ(result, expected) << ranks << " ranks, element " << i << ", in place with " << place;
          }
        }
      }
    }
  }
}

TEST(NeedsDirect, HoldsForSmallFloatsExceptMinAndMax) {
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    for (const bool deterministic : {false, true}) {
      EXPECT_TRUE(needs_direct(ReduceOp::sum, type, deterministic));
      EXPECT_TRUE(needs_direct(ReduceOp::average, type, deterministic));
      EXPECT_TRUE(needs_direct(ReduceOp::product, type, deterministic));
      EXPECT_TRUE(needs_direct(ReduceOp::pre_scaled_sum(2), type, deterministic));
      EXPECT_FALSE(needs_direct(ReduceOp::min, type, deterministic));
      EXPECT_FALSE(needs_direct(ReduceOp::max, type, deterministic));
    }
  }
}

TEST(NeedsDirect, HoldsForOtherFloatsOnlyIfDeterministic) {
  for (const DataType type : {DataType::f32, DataType::f64}) {
    for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::pre_scaled_sum(2)}) {
      EXPECT_FALSE(needs_direct(op, type, false));
      EXPECT_TRUE(needs_direct(op, type, true));
    }
    EXPECT_FALSE(needs_direct(ReduceOp::min, type, true));
    EXPECT_FALSE(needs_direct(ReduceOp::max, type, true));
  }
}

TEST(NeedsDirect, HoldsForIntegersOnlyInAverages) {
  for (const DataType type : kDataTypes) {
    if (class_of(type) != TypeClass::integer) continue;
    for (const bool deterministic : {false, true}) {
      for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
        EXPECT_FALSE(needs_direct(op, type, deterministic));
      }
      EXPECT_TRUE(needs_direct(ReduceOp::average, type, deterministic));
    }
  }
}

TEST(NeedsDirect, HoldsForComplexNumbersOnlyIfDeterministic) {
  for (const DataType type : {DataType::complex64, DataType::complex128}) {
    for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::pre_scaled_sum(2)}) {
      EXPECT_FALSE(needs_direct(op, type, false));
      EXPECT_TRUE(needs_direct(op, type, true));
    }
  }
}

TEST(NeedsDirect, HoldsNeverForBooleansPairsAndBits) {
  for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::logical_xor})
    EXPECT_FALSE(needs_direct(op, DataType::boolean, true)) << to_string(op.kind());
  EXPECT_FALSE(needs_direct(ReduceOp::min_loc, DataType::f64_index, true));
  EXPECT_FALSE(needs_direct(ReduceOp::bitwise_or, DataType::i32, true));
  EXPECT_FALSE(needs_direct(ReduceOp::logical_or, DataType::u8, true));
}

TEST(NeedsDirect, HoldsForUserOpsThatDoNotCommute) {
  UserOp commutative = kShiftAndAdd;
  commutative.commutative = true;
  EXPECT_TRUE(needs_direct(ReduceOp::user(kShiftAndAdd), DataType::i32, false));
  EXPECT_FALSE(needs_direct(ReduceOp::user(commutative), DataType::i32, true));
  EXPECT_FALSE(needs_direct(ReduceOp::user(commutative), DataType::f32, false));
  EXPECT_TRUE(needs_direct(ReduceOp::user(commutative), DataType::f32, true));
}

}  // namespace
}  // namespace collectives
