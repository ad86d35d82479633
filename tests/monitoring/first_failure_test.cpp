// Tests of the first failure of a communicator, which a host stores in shared memory. They check that later failures
// are dropped, how long texts are cut, and the wait for a rank that is still writing.
#include "monitoring/first_failure.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using namespace std::string_view_literals;

constexpr std::uint32_t kBeingWritten = 1;

TEST(FirstFailure, DoesNotExistAtFirst) {
  AbortBlock block;
  const FirstFailure failure(block);
  EXPECT_FALSE(failure.exists());
  EXPECT_FALSE(failure.read());
  EXPECT_FALSE(failure.wait());
}

TEST(FirstFailure, StaysIfAnotherOneFollows) {
  AbortBlock block;
  FirstFailure(block).store(Errc::timeout, 3, "barrier #1", "first");
  FirstFailure(block).store(Errc::aborted, 4, "barrier #2", "second");
  const FirstFailure of_another_rank(block);
  EXPECT_TRUE(of_another_rank.exists());
  const auto failure = of_another_rank.read();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Errc::timeout);
  EXPECT_EQ(failure->peer, 3);
  EXPECT_EQ(failure->operation, "barrier #1");
  EXPECT_EQ(failure->text, "first");
}

TEST(FirstFailure, ComesFromOneRankIfSeveralStoreAtOnce) {
  AbortBlock block;
  {
    std::vector<std::jthread> ranks;
    for (Rank rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&block, rank] {
        FirstFailure(block).store(Errc::aborted, rank, std::string(50, static_cast<char>('a' + rank)),
                                  std::string(500, static_cast<char>('a' + rank)));
      });
  }
  const auto failure = FirstFailure(block).read();
  ASSERT_TRUE(failure);
  const auto letter = static_cast<char>('a' + failure->peer);
  EXPECT_EQ(failure->operation, std::string(50, letter));
  EXPECT_EQ(failure->text, std::string(500, letter));
}

TEST(FirstFailure, CutsTextsToTheSizesOfTheBlock) {
  AbortBlock block;
  FirstFailure(block).store(Errc::system, 0, std::string(200, 'o'), std::string(5000, 't'));
  const auto failure = FirstFailure(block).read();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->operation, std::string(sizeof block.operation - 1, 'o'));
  EXPECT_EQ(failure->text, std::string(sizeof block.text - 1, 't'));
}

TEST(FirstFailure, ReplacesControlCharactersBySpaces) {
  AbortBlock block;
  FirstFailure(block).store(Errc::system, 0, "a\nb\0c"sv, "\x1b[31mred\x7f \xc3\xa4");
  const auto failure = FirstFailure(block).read();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->operation, "a b c");
  EXPECT_EQ(failure->text, " [31mred  \xc3\xa4");
}

TEST(FirstFailure, EndsTextsThatFillTheBlockWithoutATerminatingZero) {
  AbortBlock block;
  FirstFailure failure(block);
  failure.store(Errc::system, 0, "", "");
  std::memset(block.operation, 'o', sizeof block.operation);
  std::memset(block.text, 't', sizeof block.text);
  const auto read = failure.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->operation, std::string(sizeof block.operation, 'o'));
  EXPECT_EQ(read->text, std::string(sizeof block.text, 't'));
}

TEST(FirstFailure, IsMissingIfItsRankEndsWhileItWrites) {
  AbortBlock block;
  block.state = kBeingWritten;
  const FirstFailure failure(block);
  EXPECT_TRUE(failure.exists());
  EXPECT_FALSE(failure.read());
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(failure.wait(20ms));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 20ms);
}

TEST(FirstFailure, IsReturnedOnceItsRankHasWrittenIt) {
  AbortBlock block;
  block.state = kBeingWritten;
  const std::jthread writer([&block] {
    std::this_thread::sleep_for(5ms);
    std::strcpy(block.text, "late");
    block.state.store(2, std::memory_order_release);
  });
  const auto failure = FirstFailure(block).wait(60s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, "late");
}

}  // namespace
}  // namespace collectives::testing
