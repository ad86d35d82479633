// Tests of the message format of selected elements, indices with values: a reader gets the elements that were written,
// and refuses invalid data with an error text.
#include "compression/sparse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace collectives {
namespace {

struct Message {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::string error;
};
std::vector<std::byte> written(const SparseFormat& format, const Message& message, std::uint32_t first = 0) {
  std::vector<std::byte> bytes(format.bytes());
  write_sparse(format, {message.indices.data(), message.values.data(), format.k}, bytes.data(), first);
  return bytes;
}
Message read(const SparseFormat& format, const std::vector<std::byte>& bytes) {
  Message message{std::vector<std::uint32_t>(format.k), std::vector<float>(format.k), {}};
  message.error = read_sparse(format, bytes.data(), message.indices.data(), message.values.data());
  return message;
}
Message drawn(std::size_t n, std::size_t k, unsigned seed) {
  std::mt19937_64 random(seed);
  std::set<std::uint32_t> indices;
  while (indices.size() < k) indices.insert(static_cast<std::uint32_t>(random() % n));
  Message message{{indices.begin(), indices.end()}, {}, {}};
  for (std::size_t i = 0; i < k; ++i)
    message.values.push_back(static_cast<float>(static_cast<int>(random() % 500) - 250));
  return message;
}

TEST(SparseFormat, ReadReturnsTheWrittenEntries) {
  for (const auto& [n, k] : {std::pair<std::size_t, std::size_t>{0, 0},
                             {1, 1},
                             {100, 0},
                             {100, 7},
                             {65'536, 1000},
                             {65'537, 1001},
                             {200'000, 5},
                             {1 << 24, 4000},
                             {(1 << 24) + 1, 4001},
                             {std::size_t{1} << 32, 3}})
    for (const DataType values : {DataType::f32, DataType::bf16}) {
      const SparseFormat format{n, k, values};
      Message message = drawn(std::max<std::size_t>(n, 1), k, 7);
      if (k > 0) message.indices.back() = static_cast<std::uint32_t>(n - 1);
      const Message got = read(format, written(format, message));
      EXPECT_EQ(got.error, "");
      EXPECT_EQ(got.indices, message.indices) << n << " " << k;
      EXPECT_EQ(got.values, message.values);  // integers up to 256 are exact in bf16
    }
}

TEST(SparseFormat, ValuesAsBf16AreRoundedToTheNearest) {
  const SparseFormat format{10, 3, DataType::bf16};
  const Message got =
      read(format, written(format, {{1, 5, 9}, {1.0F / 3, -1e30F, std::numeric_limits<float>::infinity()}, {}}));
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.values[0], static_cast<float>(bfloat16(1.0F / 3)));
  EXPECT_EQ(got.values[1], static_cast<float>(bfloat16(-1e30F)));
  EXPECT_EQ(got.values[2], std::numeric_limits<float>::infinity());
}

TEST(SparseFormat, IndicesMayCountFromWhereARangeBegins) {
  const SparseFormat format{1000, 3, DataType::f32};
  EXPECT_EQ(read(format, written(format, {{5000, 5001, 5999}, {1, 2, 3}, {}}, 5000)).indices,
            (std::vector<std::uint32_t>{0, 1, 999}));
}

TEST(SparseFormat, TakesTheShorterOfTwoIndexEncodings) {
  // An index takes 4 bytes, or 2 bytes plus 4 bytes for each block of 65,536 elements.
  EXPECT_EQ((SparseFormat{347'146, 3472, DataType::f32}.bytes()), 4 + 6 * 4 + 6 * 3472U);
  EXPECT_EQ((SparseFormat{1 << 24, 10, DataType::f32}.bytes()), 4 + 8 * 10U);
  EXPECT_EQ((SparseFormat{347'146, 3472, DataType::bf16}.bytes()), 4 + 6 * 4 + 4 * 3472U);
}

TEST(HostileSparse, SaysWhatIsWrong) {
  const SparseFormat plain{70'000, 3, DataType::f32}, blocks{70'000, 40, DataType::f32};
  ASSERT_FALSE(plain.in_blocks());
  ASSERT_TRUE(blocks.in_blocks());
  const auto refused = [](const SparseFormat& format, std::vector<std::byte> bytes, std::size_t at, std::uint32_t word,
                          const char* words) {
    std::memcpy(bytes.data() + at, &word, sizeof word);
    const std::string error = read(format, bytes).error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  const std::vector<std::byte> good = written(plain, {{1, 2, 3}, {1, 2, 3}, {}});
  refused(plain, good, 0, 4, "4 elements in place of 3");
  refused(plain, good, 0, 0xffffffff, "in place of 3");
  refused(plain, good, 4, 2, "index 2 follows 2");           // a duplicate
  refused(plain, good, 4, 5, "index 2 follows 5");           // unsorted
  refused(plain, good, 12, 70'000, "index 70000 of 70000");  // out of range
  refused(plain, good, 12, 0xffffffff, "index 4294967295");
  const std::vector<std::byte> in_blocks = written(blocks, drawn(70'000, 40, 3));
  refused(blocks, in_blocks, 4, 41, "41 elements of 40 left");
  refused(blocks, in_blocks, 4, 0xffffffff, "of 40 left");
  refused(blocks, in_blocks, 4, 0, "in place of 40");
}

TEST(HostileSparse, AnyBytesAreReadOrRefusedAndNothingElse) {
  std::mt19937 random(11);
  for (const SparseFormat& format : {SparseFormat{100, 20, DataType::f32}, SparseFormat{200'000, 60, DataType::bf16},
                                     SparseFormat{70'000, 50, DataType::f32}})
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::byte> bytes = written(format, drawn(format.n, format.k, static_cast<unsigned>(round)));
      for (int change = 0; change < 1 + round % 5; ++change)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      const Message got = read(format, bytes);
      if (!got.error.empty()) continue;
      for (std::size_t i = 0; i < format.k; ++i) {
        ASSERT_LT(got.indices[i], format.n);
        if (i > 0) {
          ASSERT_LT(got.indices[i - 1], got.indices[i]);
        }
      }
    }
}

TEST(SparseSum, AddsInTheOrderOfTheTermsAndDividesOnce) {
  const std::size_t n = 100'000;
  const float thirds[] = {1e8F, 1, -1e8F};
  std::vector<Message> messages;
  for (int m = 0; m < 3; ++m) messages.push_back({{7, 40'000, 99'999}, {thirds[m], 1, 2}, {}});
  messages.push_back({{3}, {-0.0F}, {}});
  std::vector<Entries> terms;
  for (const Message& message : messages)
    terms.push_back({message.indices.data(), message.values.data(), message.indices.size()});
  SparseSum sum;
  for (int again = 0; again < 2; ++again) {
    std::vector<float> out(n);
    EXPECT_EQ(sum.add(terms.data(), terms.size(), 3, out.data(), n), 4U);
    EXPECT_EQ(out[7], ((1e8F + 1) - 1e8F) / 3);
    EXPECT_EQ(out[40'000], 1);
    EXPECT_EQ(out[99'999], 2);
    EXPECT_TRUE(std::signbit(out[3]));
    EXPECT_EQ(std::ranges::count(out, 0.0F), static_cast<std::ptrdiff_t>(n - 2 - (out[7] != 0 ? 1 : 0)));
  }
}

}  // namespace
}  // namespace collectives
