// Tests of codecs, which convert f32 values to fewer bytes for messages and back: the library's codecs and a small
// codec of a program. They run the conformance suite with every instruction set. Further tests cover the properties of
// each codec, and equal bits in every floating-point mode of the processor.
#include "collectives/codec.hpp"

#include "conformance/codec_conformance.hpp"
#include "support/instruction_sets.hpp"
#include "support/system.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace collectives {
namespace {

using namespace collectives::testing;

/// A codec that encodes eight values in five bytes: their greatest magnitude as f32, and a byte of signs.
class Signs final : public Codec {
 public:
  std::string_view name() const noexcept override { return "signs"; }
  std::size_t block() const noexcept override { return 8; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return (count + 7) / 8 * 5; }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    for (; !values.empty(); values = values.subspan(std::min<std::size_t>(8, values.size())), wire += 5) {
      std::uint32_t greatest = 0, signs = 0;
      for (std::size_t i = 0; i < std::min<std::size_t>(8, values.size()); ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(values[i]);
        greatest = std::max(greatest, bits & 0x7fffffffu);
        signs |= bits >> 31 << i;
      }
      std::memcpy(wire, &greatest, 4);
      wire[4] = static_cast<std::byte>(signs);
    }
  }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::byte* const block = wire + i / 8 * 5;
      std::uint32_t bits;
      std::memcpy(&bits, block, 4);
      values[i] = std::bit_cast<float>((bits & 0x7fffffffu) | std::to_integer<std::uint32_t>(block[4]) >> i % 8 << 31);
    }
  }
};

const Signs signs;
INSTANTIATE_TEST_SUITE_P(Own, CodecConformance, ::testing::ValuesIn(codecs().begin(), codecs().end()), codec_name);
INSTANTIATE_TEST_SUITE_P(OfAProgram, CodecConformance, ::testing::Values(&signs), codec_name);

/// Flushes denormals while this object exists, as programs do that are compiled with -ffast-math.
class FlushingDenormals {
 public:
#if defined(__SSE2__)
  FlushingDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushingDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

class OwnCodec : public ::testing::TestWithParam<const Codec*> {
 protected:
  const Codec& codec() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Own, OwnCodec, ::testing::ValuesIn(codecs().begin(), codecs().end()), codec_name);

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

TEST_P(OwnCodec, EveryInstructionSetAndModeGivesTheSameBits) {
  for (const Kind& kind : kinds_of_values()) {
    for (const std::size_t count : Sizes{1, 5, 15, 33, 63, 64, 200, 256, 1031}) {
      const std::vector<float> values = draw(kind, count, count);
      const Bytes wire = encoded(codec(), values);
      const std::vector<float> result = decoded(codec(), wire.data(), count);
      for (const std::int64_t set : instruction_sets()) {
        use_instruction_set(set);
        for (const bool flushing : {false, true}) {
          Bytes other(wire.span().size());
          std::vector<float> other_result(count);
          if (flushing) {
            const FlushingDenormals mode;
            codec().encode(values, other.data());
            codec().decode(wire.data(), other_result);
          } else {
            codec().encode(values, other.data());
            codec().decode(wire.data(), other_result);
          }
          EXPECT_TRUE(other == wire && same_bits(result, other_result))
              << count << " values, " << kind.name << ", " << hwy::TargetName(set) << (flushing ? ", flushing" : "");
        }
      }
      use_instruction_set(0);
    }
  }
}

TEST_P(OwnCodec, CodesValuesAtOddAddresses) {
  for (const std::size_t count : Sizes{1, 7, 64, 255, 256, 1031}) {
    const std::vector<float> values = draw(kinds_of_values().front(), count, count);
    const Bytes wire = encoded(codec(), values);
    const std::vector<float> result = decoded(codec(), wire.data(), count);
    for (const std::size_t offset : Sizes{1, 2, 3, 7}) {
      const Bytes elsewhere(count * sizeof(float), offset);
      std::memcpy(elsewhere.data(), values.data(), count * sizeof(float));
      const std::span<float> moved(reinterpret_cast<float*>(elsewhere.data()), count);
      for (const std::int64_t set : instruction_sets()) {
        use_instruction_set(set);
        EXPECT_TRUE(encoded(codec(), moved, offset) == wire) << count << ", " << offset << hwy::TargetName(set);
        const Bytes out(count * sizeof(float), offset);
        codec().decode(wire.data(), {reinterpret_cast<float*>(out.data()), count});
        EXPECT_EQ(0, std::memcmp(out.data(), result.data(), count * sizeof(float)))
            << count << ", " << offset << hwy::TargetName(set);
      }
      use_instruction_set(0);
    }
  }
}

/// Encodes a vector as a whole, which is long enough to bypass the caches, and in short pieces, which are not.
TEST_P(OwnCodec, LongVectorsHaveTheBitsOfTheirPieces) {
  const std::size_t block = codec().block(), piece = 64 << 10, count = (3 << 20) + 77;
  static_assert(3 << 20 > (16 << 20) / 6);
  const std::vector<float> values = draw(kinds_of_values()[9], count, 1);
  ASSERT_EQ(piece % block, 0u);
  Bytes expected(codec().encoded_bytes(count));
  std::vector<float> expected_values(count);
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const auto part = std::span(values).subspan(begin, std::min(piece, count - begin));
    std::byte* const wire = expected.data() + codec().encoded_bytes(begin);
    codec().encode(part, wire);
    codec().decode(wire, std::span(expected_values).subspan(begin, part.size()));
  }
  for (const std::size_t offset : Sizes{0, 1, 2, 4, 36}) {
    EXPECT_TRUE(encoded(codec(), values, offset) == expected) << "offset " << offset;
    const Bytes out(count * sizeof(float), offset);
    codec().decode(expected.data(), {reinterpret_cast<float*>(out.data()), count});
    EXPECT_EQ(0, std::memcmp(out.data(), expected_values.data(), count * sizeof(float))) << "offset " << offset;
  }
}

TEST(Codecs, AreFoundByName) {
  EXPECT_EQ(codecs().size(), 5u);
  for (const Codec* const codec : codecs()) EXPECT_EQ(find_codec(codec->name()), codec);
  EXPECT_EQ(find_codec("bf16"), &bf16_codec());
  EXPECT_EQ(find_codec("f16"), &f16_codec());
  EXPECT_EQ(find_codec("int8"), &int8_codec());
  EXPECT_EQ(find_codec("mx_f8e4m3"), &mx_f8e4m3_codec());
  EXPECT_EQ(find_codec("mx_f8e5m2"), &mx_f8e5m2_codec());
  EXPECT_EQ(find_codec("bf1"), nullptr);
  EXPECT_EQ(find_codec(""), nullptr);
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

float through(const Codec& codec, float value) {
  const Bytes wire = encoded(codec, std::span(&value, 1));
  return decoded(codec, wire.data(), 1)[0];
}

TEST(Bf16, EdgesOfRounding) {
  const auto rounded = [](std::uint32_t bits) { return bits_of(through(bf16_codec(), float_of(bits))); };
  EXPECT_EQ(rounded(0x3f808000u), 0x3f800000u);  // a tie is rounded to the even value
  EXPECT_EQ(rounded(0x3f818000u), 0x3f820000u);
  EXPECT_EQ(rounded(0x3f808001u), 0x3f810000u);
  EXPECT_EQ(rounded(0x7f7f7fffu), 0x7f7f0000u);  // the greatest f32 whose bf16 stays finite
  EXPECT_EQ(rounded(0x7f7f8000u), 0x7f800000u);
  EXPECT_EQ(rounded(0x00400000u), 0x00400000u);  // 2^-127, a denormal
  EXPECT_EQ(rounded(0x80008001u), 0x80010000u);
  EXPECT_EQ(rounded(0x7f800001u), 0x7fc00000u);  // NaN stays NaN and becomes quiet
  EXPECT_EQ(rounded(0xffffffffu), 0xffff0000u);
}

/// Puts one NaN or one tie among other numbers, at each place of a long vector and of its last elements.
TEST(Bf16, OneValueAmongOthersThatNeedsMoreThanAnAddition) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(131, 1.5f);
  values[3] = infinity, values[70] = -infinity, values[6] = -infinity;
  for (const std::int64_t set : instruction_sets()) {
    use_instruction_set(set);
    for (const auto& [odd, rounded] : {std::pair(0xff800001u, 0xffc00000u), {0x3f808000u, 0x3f800000u}}) {
      for (std::size_t place = 0; place < values.size(); ++place) {
        std::vector<float> with_odd = values;
        with_odd[place] = float_of(odd);
        const std::vector<float> result = decoded(bf16_codec(), encoded(bf16_codec(), with_odd).data(), values.size());
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(bits_of(result[i]), i == place ? rounded : bits_of(values[i]))
              << std::hex << odd << std::dec << " at " << place << ", " << i << ", " << hwy::TargetName(set);
      }
    }
  }
  use_instruction_set(0);
}

TEST(Bf16AndF16, RelativeErrorIsBounded) {
  for (const float value : draw(kinds_of_values()[2], 100000, 5)) {
    EXPECT_LE(std::abs(through(bf16_codec(), value) - value), std::ldexp(std::abs(value), -8));
  }
  for (const float value : draw(kinds_of_values()[1], 100000, 6)) {
    EXPECT_LE(std::abs(through(f16_codec(), value) - value), std::ldexp(std::abs(value), -11));
  }
}

TEST(Int8, ABlockIsAScaleAndBytes) {
  std::vector<float> values(300, 1.f);
  values[0] = -127, values[1] = 2.5f, values[2] = 3.5f, values[256] = 254;
  const Bytes wire = encoded(int8_codec(), values);
  ASSERT_EQ(wire.span().size(), 308u);
  float scales[2];
  std::memcpy(&scales[0], wire.data(), 4);
  std::memcpy(&scales[1], wire.data() + 260, 4);
  EXPECT_EQ(scales[0], 1.f);
  EXPECT_EQ(scales[1], 2.f);
  const auto q = [&](std::size_t at) { return static_cast<int>(static_cast<std::int8_t>(wire.data()[at])); };
  EXPECT_EQ(q(4), -127);
  EXPECT_EQ(q(5), 2);  // ties to even
  EXPECT_EQ(q(6), 4);
  EXPECT_EQ(q(7), 1);
  EXPECT_EQ(q(264), 127);
  EXPECT_EQ(q(265), 0);
}

/// Tries greatest magnitudes of a block from the smallest to the largest f32. Encoding decoded values must give the
/// same scale again.
TEST(Int8, LawForGreatestMagnitudesFromEndToEnd) {
  std::mt19937_64 random(1);
  const auto try_block = [&](std::uint32_t greatest) {
    std::vector<float> values(256);
    for (float& value : values) value = float_of(greatest) * std::uniform_real_distribution<float>(-1, 1)(random);
    values[random() % 256] = float_of(greatest);
    const Bytes wire = encoded(int8_codec(), values);
    const std::vector<float> result = decoded(int8_codec(), wire.data(), 256);
    ASSERT_TRUE(encoded(int8_codec(), result) == wire) << "greatest magnitude of bits " << greatest;
    // The error bound is half a step, increased because the scale is rounded up. It is at least half of the smallest
    // scale.
    const double bound = std::max(double{float_of(greatest)} / 127 * 0.5 * (1 + 0x1p-15), 0x1p-126);
    for (std::size_t i = 0; i < 256; ++i) {
      ASSERT_LE(std::abs(double{result[i]} - double{values[i]}), bound) << "greatest magnitude of bits " << greatest;
    }
  };
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += kSanitized ? 0x2fffff : 0x1ffff) {
    ASSERT_NO_FATAL_FAILURE(try_block(static_cast<std::uint32_t>(bits)));
  }
  // Magnitudes around the largest f32, the smallest scale, half of that scale, and 127 times that scale.
  for (const std::uint32_t middle :
       {0x7f800000u - 600u, 0x00800000u, 0x01000000u, 0x01000000u + 127 * 4, bits_of(127 * 0x1p-125f),
        bits_of(127 * 0x1.0204p121f), bits_of(63.5f * 0x1p-125f)}) {
    for (std::uint32_t bits = middle - 600; bits < std::min(middle + 600, 0x7f800000u); ++bits) {
      ASSERT_NO_FATAL_FAILURE(try_block(bits));
    }
  }
}

TEST(Int8, BlocksOfZerosAndOfWhatIsTooSmall) {
  const std::vector<std::byte> zeros(260);
  for (const float value : {0.f, -0.f, 0x1p-149f, -0x1.fffffcp-127f, 0x1p-126f}) {
    const std::vector<float> values(256, value);
    const Bytes wire = encoded(int8_codec(), values);
    EXPECT_TRUE(std::ranges::equal(wire.span(), zeros)) << value;
  }
  const std::vector<float> least(256, 0x1.000002p-126f);
  for (const float value : decoded(int8_codec(), encoded(int8_codec(), least).data(), 256)) {
    EXPECT_EQ(value, 0x1p-125f);
  }
}

TEST(Int8, WhatIsNotFiniteMakesItsBlockNan) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            float_of(0x7f800001u), float_of(0xffffffffu)}) {
    for (const std::size_t place : Sizes{0, 255, 256, 511, 512, 520}) {
      std::vector<float> values(521, 1.f);
      values[place] = value;
      const std::vector<float> result = decoded(int8_codec(), encoded(int8_codec(), values).data(), 521);
      for (std::size_t i = 0; i < 521; ++i) {
        ASSERT_EQ(std::isnan(result[i]), i / 256 == place / 256) << value << " at " << place << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace collectives
