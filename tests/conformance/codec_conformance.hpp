// Conformance suite of codecs, which convert f32 values to fewer bytes for messages and back. The library's codecs and
// those of a program run it:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, CodecConformance, ::testing::Values(&codec), codec_name);
//
// Buffers are on the heap and have the exact size, so that the address sanitizer reports accesses beyond their end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "collectives/codec.hpp"

namespace collectives::testing {

using Sizes = std::initializer_list<std::size_t>;

/// `size` bytes on the heap that begin `offset` bytes after an aligned address and end at the end of the allocation.
class Bytes {
 public:
  explicit Bytes(std::size_t size, std::size_t offset = 0)
      : memory_(std::make_unique<std::byte[]>(size + offset)), size_(size), offset_(offset) {}
  std::byte* data() const { return memory_.get() + offset_; }
  std::span<const std::byte> span() const { return {data(), size_}; }
  bool operator==(const Bytes& other) const { return std::ranges::equal(span(), other.span()); }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_, offset_;
};

inline Bytes encoded(const Codec& codec, std::span<const float> values, std::size_t offset = 0) {
  Bytes wire(codec.encoded_bytes(values.size()), offset);
  codec.encode(values, wire.data());
  return wire;
}

inline std::vector<float> decoded(const Codec& codec, const std::byte* wire, std::size_t count) {
  std::vector<float> values(count);
  codec.decode(wire, values);
  values.shrink_to_fit();
  return values;
}

/// Kinds of values that are difficult for codecs.
struct Kind {
  std::string name;
  std::function<float(std::mt19937_64&)> draw;
};

inline const std::vector<Kind>& kinds_of_values() {
  using Random = std::mt19937_64;
  static const auto bits = [](Random& random) { return static_cast<std::uint32_t>(random()); };
  static const auto uniform = [](Random& random, double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  static const auto sign = [](Random& random) { return random() % 2 == 0 ? 1.0 : -1.0; };
  static const std::vector<Kind> kinds{
      {"normal", [](Random& random) { return std::normal_distribution<float>()(random); }},
      {"of one sign", [](Random& random) { return static_cast<float>(uniform(random, -1, -0.5)); }},
      {"of any magnitude",
       [](Random& random) { return static_cast<float>(sign(random) * std::exp2(uniform(random, -60, 60))); }},
      {"denormal", [](Random& random) { return std::bit_cast<float>(bits(random) & 0x807fffffu); }},
      {"next to denormal", [](Random& random) { return std::bit_cast<float>(bits(random) & 0x81ffffffu); }},
      {"next to the greatest",
       [](Random& random) { return std::bit_cast<float>(bits(random) % 0x100u + 0x7f7fff00u); }},
      {"zeros of both signs", [](Random& random) { return static_cast<float>(0 * sign(random)); }},
      {"infinite now and then",
       [](Random& random) {
         return static_cast<float>(sign(random)) *
                (random() % 1000 == 0 ? std::numeric_limits<float>::infinity() : 1.5f);
       }},
      {"NaN now and then",
       [](Random& random) { return random() % 1000 == 0 ? std::bit_cast<float>(bits(random) | 0x7f800001u) : 1.5f; }},
      {"of any bits", [](Random& random) { return std::bit_cast<float>(bits(random)); }},
  };
  return kinds;
}

inline std::vector<float> draw(const Kind& kind, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return kind.draw(random); });
  return values;
}

inline std::string codec_name(const ::testing::TestParamInfo<const Codec*>& info) {
  std::string name(info.param->name());
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class CodecConformance : public ::testing::TestWithParam<const Codec*> {
 protected:
  const Codec& codec() const { return *GetParam(); }
  /// Lengths around those of blocks and of vectors.
  std::vector<std::size_t> counts() const {
    const std::size_t block = codec().block();
    return {1,  2,   3,   7,   15,  16,   17,    31,        63,        64,
            65, 127, 255, 256, 257, 1031, block, block + 1, 3 * block, 3 * block - 1};
  }
};

TEST_P(CodecConformance, DecodedValuesEncodeWithoutFurtherLoss) {
  for (const Kind& kind : kinds_of_values()) {
    for (const std::size_t count : counts()) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const Bytes wire = encoded(codec(), draw(kind, count, seed));
        const Bytes again = encoded(codec(), decoded(codec(), wire.data(), count));
        ASSERT_TRUE(again == wire) << count << " values, " << kind.name << ", seed " << seed;
      }
    }
  }
}

TEST_P(CodecConformance, BytesCanBeCutAtBlocks) {
  const std::size_t block = codec().block(), count = 5 * block + block / 2;
  for (const Kind& kind : kinds_of_values()) {
    const std::vector<float> values = draw(kind, count, 7);
    const Bytes wire = encoded(codec(), values);
    const Bytes whole = encoded(codec(), decoded(codec(), wire.data(), count));
    for (std::size_t cut = 0; cut <= count; cut += block) {
      const std::size_t bytes = codec().encoded_bytes(cut);
      ASSERT_EQ(bytes + codec().encoded_bytes(count - cut), wire.span().size()) << "cut at " << cut;
      const Bytes front = encoded(codec(), std::span(values).first(cut));
      const Bytes back = encoded(codec(), std::span(values).subspan(cut));
      ASSERT_TRUE(std::ranges::equal(front.span(), wire.span().first(bytes))) << kind.name << ", cut at " << cut;
      ASSERT_TRUE(std::ranges::equal(back.span(), wire.span().subspan(bytes))) << kind.name << ", cut at " << cut;
      std::vector<float> pieces = decoded(codec(), wire.data(), cut);
      const std::vector<float> rest = decoded(codec(), wire.data() + bytes, count - cut);
      pieces.insert(pieces.end(), rest.begin(), rest.end());
      ASSERT_TRUE(encoded(codec(), pieces) == whole) << kind.name << ", cut at " << cut;
    }
  }
}

TEST_P(CodecConformance, RateIsBounded) {
  for (std::size_t count = 0; count < 3000; ++count) EXPECT_LE(codec().encoded_bytes(count), 4 * count + 64);
  const std::size_t many = (std::size_t{1} << 40) + 1;
  EXPECT_LE(codec().encoded_bytes(many), 4 * many + 64);
}

TEST_P(CodecConformance, AnyPlaceInMemoryGivesTheSameBits) {
  for (const std::size_t count : counts()) {
    const std::vector<float> values = draw(kinds_of_values().front(), count, count);
    const Bytes wire = encoded(codec(), values);
    const std::vector<float> result = decoded(codec(), wire.data(), count);
    for (const std::size_t offset : Sizes{1, 2, 3, 5, 13, 31}) {
      const Bytes elsewhere(values.size() * sizeof(float), offset * sizeof(float));
      const std::span moved(reinterpret_cast<float*>(elsewhere.data()), count);
      std::ranges::copy(values, moved.begin());
      const Bytes unaligned = encoded(codec(), moved, offset);
      ASSERT_TRUE(unaligned == wire) << count << " values, offset " << offset;
      std::ranges::fill(moved, 0.f);
      codec().decode(unaligned.data(), moved);
      ASSERT_EQ(0, std::memcmp(moved.data(), result.data(), moved.size_bytes()))
          << count << " values, offset " << offset;
    }
  }
}

TEST_P(CodecConformance, NothingIsKeptFromCallToCall) {
  const std::vector<float> first = draw(kinds_of_values()[0], 1031, 1), second = draw(kinds_of_values()[2], 1031, 2);
  const Bytes before = encoded(codec(), first);
  const Bytes between = encoded(codec(), second);
  decoded(codec(), between.data(), second.size());
  EXPECT_TRUE(encoded(codec(), first) == before);
}

TEST_P(CodecConformance, AnyBytesGiveSomeValues) {
  std::mt19937_64 random(3);
  for (const std::size_t count : counts()) {
    const Bytes wire(codec().encoded_bytes(count), 1);
    const std::span bytes(wire.data(), wire.span().size());
    for (int round = 0; round < 100; ++round) {
      std::ranges::generate(bytes, [&] { return static_cast<std::byte>(round == 0 ? 0xff : random()); });
      encoded(codec(), decoded(codec(), wire.data(), count));
    }
  }
}

TEST_P(CodecConformance, NoValuesNeedNoMemory) {
  codec().encode({}, Bytes(codec().encoded_bytes(0)).data());
  codec().decode(Bytes(codec().encoded_bytes(0)).data(), {});
}

TEST_P(CodecConformance, HasANameAndABlock) {
  EXPECT_FALSE(codec().name().empty());
  EXPECT_GE(codec().block(), 1u);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CodecConformance);

}  // namespace collectives::testing
