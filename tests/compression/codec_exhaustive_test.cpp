// Tests of the codecs bf16 and f16 on all 2^32 values of f32, compared with the conversions in types.hpp.
//
// The best instruction set of the processor encodes all values. Other instruction sets, and builds with a sanitizer,
// are slower and encode one of every 61 pieces. A piece is 16,384 consecutive bit patterns.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collectives/codec.hpp"
#include "support/instruction_sets.hpp"
#include "support/system.hpp"

namespace collectives {
namespace {

using testing::kSanitized;

constexpr std::uint64_t kPiece = 1 << 14, kAll = std::uint64_t{1} << 32, kSome = 61;

/// Compares the codec with types.hpp on one of every `every` pieces.
template <class T>
void compare(const Codec& codec, std::uint64_t every) {
  std::vector<float> values(kPiece), decoded(kPiece), expected_values(kPiece);
  std::vector<T> expected(kPiece);
  std::vector<std::byte> wire(kPiece * sizeof(T));
  for (std::uint64_t begin = 0; begin < kAll; begin += every * kPiece) {
    for (std::uint64_t i = 0; i < kPiece; ++i) {
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(begin + i));
      expected[i] = T(values[i]);
    }
    codec.encode(values, wire.data());
    ASSERT_EQ(0, std::memcmp(wire.data(), expected.data(), wire.size())) << "from bits " << begin << " on";
  }
  for (std::uint64_t begin = 0; begin < 1 << 16; begin += kPiece) {
    for (std::uint64_t i = 0; i < kPiece; ++i) {
      expected[i].bits = static_cast<std::uint16_t>(begin + i);
      expected_values[i] = float(expected[i]);
    }
    codec.decode(reinterpret_cast<const std::byte*>(expected.data()), decoded);
    // The instructions of F16C set the quiet bit of NaN. Other code need not, so both sides are compared with it set.
    for (std::uint64_t i = 0; i < kPiece; ++i) {
      const auto quiet = std::uint32_t{decoded[i] != decoded[i]} << 22;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(decoded[i]) | quiet,
                std::bit_cast<std::uint32_t>(expected_values[i]) | quiet)
          << "of bits " << begin + i;
    }
  }
}

template <class T>
void compare_everywhere(const Codec& codec) {
  compare<T>(codec, kSanitized ? kSome : 1);
  for (const std::int64_t set : instruction_sets()) {
    SCOPED_TRACE(hwy::TargetName(set));
    use_instruction_set(set);
    compare<T>(codec, kSome);
  }
  use_instruction_set(0);
}

TEST(CodecExhaustive, Bf16OfEveryFloat) { compare_everywhere<bfloat16>(bf16_codec()); }
TEST(CodecExhaustive, F16OfEveryFloat) { compare_everywhere<float16>(f16_codec()); }

}  // namespace
}  // namespace collectives
