// Tests of the texts that list faults for a program to survive: valid texts, mistakes and their positions, and ranks
// that do not exist.
#include "injection/faults.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "support/errors.hpp"

namespace collectives::testing {
namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

std::vector<Fault> parsed(std::string_view text) { return parse_faults(text, "X"); }

TEST(Faults, AreReadInOrder) {
  const std::vector<Fault> faults =
      parsed(" kill rank=2 call=17 phase=sent;\n delay call=5 ms=300 rank=1;drop from=0 to=1 call=3; ");
  ASSERT_EQ(faults.size(), 3U);
  EXPECT_EQ(faults[0].kind, Kind::kill);
  EXPECT_EQ(faults[0].rank, 2);
  EXPECT_EQ(faults[0].call, 17U);
  EXPECT_EQ(faults[0].phase, Phase::sent);
  EXPECT_EQ(faults[1].kind, Kind::delay);
  EXPECT_EQ(faults[1].rank, 1);
  EXPECT_EQ(faults[1].delay, std::chrono::milliseconds(300));
  EXPECT_EQ(faults[1].phase, Phase::begin);
  EXPECT_EQ(faults[2].kind, Kind::drop);
  EXPECT_EQ(faults[2].rank, 0);
  EXPECT_EQ(faults[2].to, 1);
  EXPECT_EQ(faults[2].datagrams, 1U);
}

TEST(Faults, AreWrittenAsTheyAreRead) {
  for (const std::string text : {"delay rank=1 call=5 ms=300 phase=begin", "stop rank=0 call=1 phase=wait",
                                 "kill rank=12 call=0 phase=end", "disconnect rank=3 call=7 phase=sent",
                                 "drop from=0 to=1 call=3 count=4", "cut from=2 to=0 call=9 phase=begin"}) {
    const std::vector<Fault> faults = parsed(text);
    ASSERT_EQ(faults.size(), 1U) << text;
    EXPECT_EQ(faults[0].text(), text);
  }
}

TEST(Faults, AreNoneInATextWithout) {
  for (const char* text : {"", "  \n", "none", " none "}) EXPECT_TRUE(parsed(text).empty()) << text;
}

TEST(Faults, AreRefusedWithThePositionOfTheMistake) {
  struct Case {
    std::string_view text, why;
  };
  for (const auto& [text, why] : {
           Case{"kil rank=1 call=1",
                "at character 1: unknown fault \"kil\"; known: delay, stop, kill, disconnect, drop"},
           Case{"kill rank=1 call=1; Stop rank=1 call=2", "at character 21: unknown fault \"Stop\""},
           Case{"kill rank=1 call=1 phase=middle",
                "at character 26: unknown phase \"middle\"; known: begin, sent, wait, end"},
           Case{"kill rank=one call=1", "at character 11: \"one\" is no number from 0 to"},
           Case{"kill rank=-1 call=1", "at character 11: \"-1\" is no number"},
           Case{"kill rank=1 call=", "at character 18: \"\" is no number"},
           Case{"kill rank=1 call=99999999999999999999", "is no number"},
           Case{"kill rank=1", "at character 1: kill needs call="},
           Case{"kill", "kill needs rank="},
           Case{"kill rank=1 call=1 ms=5",
                "at character 20: \"ms=5\" is no setting of kill; it needs rank=, call=, and takes phase="},
           Case{"kill rank call=1", "at character 6: \"rank\" is no setting of kill"},
           Case{"kill rank=1 rank=2 call=1", "at character 13: rank= is given twice"},
           Case{"delay rank=1 call=1", "delay needs ms="},
           Case{"delay rank=1 call=1 ms=0", "\"0\" is no number from 1 to 3600000"},
           Case{"drop from=0 to=1 call=3 phase=end", "\"phase=end\" is no setting of drop"},
           Case{"drop from=0 to=1 call=3 count=0", "\"0\" is no number from 1"},
           Case{"cut from=1 to=1 call=3", "rank 1 sends itself no messages"},
           Case{"cut from=1 to=0 call=0", "cut has no meaning at call 0, the construction: no connection exists yet"},
           Case{"stop rank=1 call=0 phase=wait", "phase wait has no meaning at call 0"},
           Case{";", "at character 1: a fault is missing before the semicolon"},
           Case{"kill rank=1 call=1;; kill rank=1 call=2", "at character 20: a fault is missing"},
           Case{"none; none", "unknown fault \"none\""},
           Case{"kill rank=1 call=1, kill rank=1 call=2", "\"1,\" is no number"},
       }) {
    const Error error = error_of([&] { parsed(text); });
    EXPECT_EQ(error.code(), Errc::invalid_argument) << text;
    EXPECT_SAYS(error.what(), std::string(why));
    EXPECT_SAYS(error.what(), "X=\"" + std::string(text) + "\": at character ");
  }
}

TEST(Faults, AreRefusedAtARankThatDoesNotExist) {
  check_ranks(parsed("kill rank=2 call=1; cut from=0 to=2 call=1"), 3, 0);
  for (const char* text : {"kill rank=3 call=1", "cut from=0 to=3 call=1", "drop from=3 to=0 call=1"})
    EXPECT_SAYS(error_of([&] { check_ranks(parsed(text), 3, 0); }).what(),
                "there is no rank 3: the communicator has ranks 0 to 2");
}

}  // namespace
}  // namespace collectives::testing
