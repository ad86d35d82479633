// Tests of SipHash-2-4 with the vectors that its authors have published.
#include "base/sip_hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace collectives::testing {
namespace {

TEST(SipHash, HasTheValuesOfItsAuthors) {
  const SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string bytes;
  EXPECT_EQ(sip_hash(key, bytes), 0x726fdb47dd0e0e31U);
  for (char c = 0; c < 15; ++c) bytes += c;
  EXPECT_EQ(sip_hash(key, bytes.substr(0, 1)), 0x74f839c593dc67fdU);
  EXPECT_EQ(sip_hash(key, bytes.substr(0, 8)), 0x93f5f5799a932462U);
  EXPECT_EQ(sip_hash(key, bytes), 0xa129ca6149be45e5U);
}

TEST(SipHash, DependsOnEveryBitOfTheKey) {
  const std::uint64_t hash = sip_hash({1, 2}, "text");
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(sip_hash({1 ^ std::uint64_t{1} << bit, 2}, "text"), hash);
    EXPECT_NE(sip_hash({1, 2 ^ std::uint64_t{1} << bit}, "text"), hash);
  }
}

}  // namespace
}  // namespace collectives::testing
