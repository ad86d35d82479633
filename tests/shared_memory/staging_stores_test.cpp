// Tests of StagingStores, which chooses between normal and streaming stores for copies to shared memory. The tests pass
// a clock of their own, so each copy that is timed takes as long as the test wants.
#include "shared_memory/staging_stores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace collectives::testing {
namespace {

constexpr std::size_t kBytes = 8 << 10;

std::uint64_t now = 0, step = 0;  // time of the clock, and nanoseconds between two readings
int readings = 0;

std::uint64_t test_clock() noexcept {
  ++readings;
  return now += step;
}

class StagingStoresTest : public ::testing::Test {
 protected:
  StagingStoresTest() { now = step = 0, readings = 0; }
  void copies(int count, std::size_t bytes = kBytes) {
    for (int i = 0; i < count; ++i) stores_.copy(to_.data(), from_.data(), bytes);
  }

  StagingStores stores_{test_clock};
  std::vector<std::byte> from_ = std::vector<std::byte>(kBytes), to_ = std::vector<std::byte>(kBytes);
};

constexpr std::uint64_t kSlowCopy = 3000, kFastCopy = 200, kInterruptedCopy = 1'000'000;  // ns for 128 cache lines

TEST_F(StagingStoresTest, StreamsAfterTwoSlowCopiesInARow) {
  step = kSlowCopy;
  copies(16);
  EXPECT_EQ(readings, 2);
  EXPECT_FALSE(stores_.streams()) << "one slow copy may have been interrupted";
  copies(1);
  EXPECT_TRUE(stores_.streams());
}

TEST_F(StagingStoresTest, IgnoresASingleSlowCopy) {
  step = kSlowCopy;
  copies(16);
  step = kFastCopy;
  copies(1);
  EXPECT_EQ(readings, 4);
  step = kSlowCopy;
  copies(16);
  EXPECT_EQ(readings, 6);
  EXPECT_FALSE(stores_.streams());
}

TEST_F(StagingStoresTest, TimesTheNextCopyAfterAnInterruptedOne) {
  step = kInterruptedCopy;
  copies(20);
  EXPECT_EQ(readings, 2 * 5);
  EXPECT_FALSE(stores_.streams());
  step = kSlowCopy;
  copies(2);
  EXPECT_TRUE(stores_.streams());
  step = kInterruptedCopy;
  copies(100);
  EXPECT_TRUE(stores_.streams());
}

TEST_F(StagingStoresTest, ReturnsToNormalStoresAfterAFastCopy) {
  step = kSlowCopy;
  copies(17);
  ASSERT_TRUE(stores_.streams());
  step = kFastCopy;
  copies(63);
  EXPECT_TRUE(stores_.streams());
  copies(1);
  EXPECT_FALSE(stores_.streams());
}

TEST_F(StagingStoresTest, TimesRarelyWhileNormalStoresStaySlow) {
  step = kSlowCopy;
  copies(17);
  readings = 0;
  copies(100'000);
  EXPECT_TRUE(stores_.streams());
  EXPECT_LT(readings, 2 * 110);
  EXPECT_GT(readings, 2 * 90);
}

TEST_F(StagingStoresTest, NeverTimesShortCopies) {
  copies(1000, 4095);
  EXPECT_EQ(readings, 0);
}

TEST_F(StagingStoresTest, CopiesEveryLengthWithBothStores) {
  std::vector<std::byte> from(20'000), to(20'100);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const bool streams : {false, true}) {
    step = kSlowCopy;
    if (streams) copies(17);
    ASSERT_EQ(stores_.streams(), streams);
    for (const std::size_t bytes : {0U, 1U, 63U, 4095U, 4096U, 4097U, 8191U, 19'999U})
      for (const std::size_t offset : {0U, 1U, 8U, 64U}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        stores_.copy(to.data() + offset, from.data(), bytes);
        EXPECT_TRUE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes),
                               to.begin() + static_cast<std::ptrdiff_t>(offset)))
            << bytes << " bytes at " << offset;
        EXPECT_EQ(to[offset + bytes], std::byte{0xee}) << bytes << " bytes at " << offset;
      }
  }
}

}  // namespace
}  // namespace collectives::testing
