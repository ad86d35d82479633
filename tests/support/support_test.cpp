// Tests of helpers that other tests use: the watchdog, ranks that are threads, and regular expressions.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "support/pattern.hpp"
#include "support/programs.hpp"
#include "support/ranks.hpp"
#include "support/watchdog.hpp"

namespace collectives::testing {
namespace {

TEST(WatchdogDeathTest, ATestThatHangsIsNamed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto hang = [] {
    Watchdog watchdog(std::chrono::seconds(0));
    watchdog.OnTestStart(*::testing::UnitTest::GetInstance()->current_test_info());
    std::this_thread::sleep_for(std::chrono::minutes(1));  // the watchdog ends the process much earlier
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(3),
              "watchdog: WatchdogDeathTest.ATestThatHangsIsNamed has run for 0 s");
}

TEST(Watchdog, BetweenTestsThereIsNoHurry) {
  Watchdog watchdog(std::chrono::hours(1));
  watchdog.OnTestStart(*::testing::UnitTest::GetInstance()->current_test_info());
  watchdog.OnTestEnd(*::testing::UnitTest::GetInstance()->current_test_info());
}

TEST(Ranks, EachRunsOnceAndTheyMeet) {
  std::atomic<int> sum = 0;
  run_ranks(5, [&](Bootstrap& bootstrap) {
    sum += bootstrap.rank();
    const std::vector<std::string> texts =
        bootstrap.all_gather(std::to_string(bootstrap.rank()), Deadline::in(std::chrono::minutes(1)));
    EXPECT_EQ(texts, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  });
  EXPECT_EQ(sum, 10);
}

TEST(Ranks, AFailureComesOutWithItsRankInFront) {
  try {
    run_ranks(3, [](Bootstrap& bootstrap) {
      if (bootstrap.rank() == 1) throw Error(Errc::mismatch, "all_reduce #2: no", 1, 0, "all_reduce #2");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1: all_reduce #2: no");
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_EQ(error.operation(), "all_reduce #2");
  }
  EXPECT_THROW(run_ranks(1, [](Bootstrap&) { throw 3; }), std::runtime_error);
}

TEST(Processes, OfThisTestAreCountedAndThoseOfOtherTestsAreNot) {
  std::string path = run_command("command -v sleep").out;
  path = std::filesystem::canonical(path.substr(0, path.find('\n'))).string();
  run_command("(sleep 3 & env -u STARTED_BY_TEST sleep 3 & env STARTED_BY_TEST=1 sleep 3 &) > /dev/null 2> /dev/null");
  for (int tries = 0; tries < 100 && processes_of(path) == 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(processes_of(path), 1);
  for (int tries = 0; tries < 1000 && processes_of(path) != 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(processes_of(path), 0);
}

TEST(Pattern, FindsMatchesAndTheirGroups) {
  const Pattern pattern("rank ([0-9]+)");
  const std::string text = "from rank 12 to rank 3";
  ASSERT_TRUE(pattern.first_in(text));
  EXPECT_EQ(pattern.first_in(text)->text, "rank 12");
  EXPECT_EQ(pattern.first_in(text)->group, "12");
  EXPECT_FALSE(pattern.at_beginning_of(text));
  EXPECT_TRUE(pattern.at_beginning_of(text.substr(5)));
  EXPECT_FALSE(pattern.first_in(""));
  EXPECT_EQ(pattern.all_in(text).size(), 2u);
  EXPECT_EQ(pattern.removed_from(text), "from  to ");
}

TEST(Pattern, TheBeginningOfATextMatchesOnce) {
  EXPECT_EQ(Pattern("^a|b").removed_from("aab"), "a");
  EXPECT_EQ(Pattern("^a").removed_from("aa"), "a");
  EXPECT_EQ(Pattern("no group").first_in("no group")->group, "");
}

TEST(Occurrences, CountsMatchesThatDoNotOverlap) {
  EXPECT_EQ(occurrences("aaaa", "aa"), 2);
  EXPECT_EQ(occurrences("1 and 22", "[0-9]+"), 2);
}

}  // namespace
}  // namespace collectives::testing
