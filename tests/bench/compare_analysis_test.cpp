// Tests of the analysis behind scripts/compare.sh, which times this library beside others. From the measured samples it
// computes ratios, confidence intervals, verdicts and tables. A round times each library once. A cell is one
// combination of ranks, collective and size.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "analysis.hpp"
#include "tables.hpp"

namespace collectives::compare {
namespace {

Rounds rounds(std::initializer_list<double> times) {
  Rounds result;
  for (const double time : times) result.emplace(static_cast<int>(result.size()) + 1, time);
  return result;
}

/// Returns `count` rounds that all measured `time`.
Rounds steady(double time, int count = 7) {
  Rounds result;
  for (int round = 1; round <= count; ++round) result[round] = time;
  return result;
}

Cell cell_of(std::size_t bytes, const std::string& collective = "all_reduce") {
  return {2, false, collective, false, bytes};
}

/// Collects the samples of one line of a table, whose cells differ only in their size.
class Recorded {
 public:
  Recorded& add(std::size_t bytes, const std::string& contender, Role role, const Rounds& times) {
    samples.cells[cell_of(bytes, collective)][contender] = {role, times};
    return *this;
  }
  Line line() const { return judge(samples).at(0); }
  Verdict only() const { return line().verdicts.at(0); }

  std::string collective = "all_reduce";
  Samples samples;
};

TEST(BestPeer, IsTheOneWithTheSmallestRatio) {
  const auto ratio = best_peer_over(steady(2), {{"slow", steady(9)}, {"fast", steady(3)}, {"middle", steady(5)}});
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->peer, "fast");
  EXPECT_DOUBLE_EQ(ratio->peer_time, 3);
  EXPECT_DOUBLE_EQ(ratio->value, 1.5);
}

TEST(BestPeer, ComparesRoundByRound) {
  // The machine was ten times slower in the last four rounds, in which both libraries took ten times as long.
  const auto ratio = best_peer_over(rounds({1, 1, 1, 10, 10, 10, 10}), {{"peer", rounds({2, 2, 2, 20, 20, 20, 20})}});
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, 2);
  EXPECT_DOUBLE_EQ(ratio->low, 2);
  EXPECT_DOUBLE_EQ(ratio->high, 2);
}

TEST(BestPeer, APeerWithMissingRoundsIsComparedOverTheRest) {
  Rounds peer = rounds({100, 4, 4, 4, 4, 4, 4});
  peer.erase(1);
  const auto ratio = best_peer_over(rounds({1, 2, 2, 2, 2, 2, 2}), {{"peer", peer}});
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, 2);
}

TEST(BestPeer, ReturnsNothingWithoutACommonRound) {
  EXPECT_FALSE(best_peer_over(Rounds{{1, 1.0}}, {{"peer", Rounds{{2, 1.0}}}}));
  EXPECT_FALSE(best_peer_over(steady(1), {}));
}

TEST(Interval, HoldsTheRatioAndTheNoise) {
  const Rounds noisy = rounds({1.0, 1.4, 0.8, 1.1, 0.9, 1.3, 1.2});
  const auto ratio = best_peer_over(steady(1), {{"peer", noisy}});
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, 1.1);
  EXPECT_LT(ratio->low, ratio->value);
  EXPECT_GT(ratio->high, ratio->value);
  // The interval comes from medians of seven values drawn at random from these. Less than 2.5 % of such medians lie
  // below the second smallest value or above the second largest.
  EXPECT_GE(ratio->low, 0.8);
  EXPECT_LE(ratio->high, 1.4);
}

TEST(Interval, IsTheSameEveryTime) {
  const Rounds noisy = rounds({1.0, 1.4, 0.8, 1.1, 0.9, 1.3, 1.2});
  const auto first = best_peer_over(steady(1), {{"peer", noisy}}),
             second = best_peer_over(steady(1), {{"peer", noisy}});
  EXPECT_EQ(first->low, second->low);
  EXPECT_EQ(first->high, second->high);
}

TEST(Interval, OneRoundInSevenDoesNotStretchIt) {
  const auto ratio = best_peer_over(steady(1), {{"peer", rounds({2, 2, 2, 2, 2, 2, 90})}});
  EXPECT_DOUBLE_EQ(ratio->value, 2);
  EXPECT_DOUBLE_EQ(ratio->high, 2);
}

TEST(Bar, IsLowerForAllGatherBoundByASingleCopy) {
  EXPECT_EQ(bar(cell_of(8 << 10, "all_gather")), 0.9);
  EXPECT_EQ(bar(cell_of(16 << 20, "all_gather")), 0.9);
  EXPECT_EQ(bar(cell_of((8 << 10) - 8, "all_gather")), 1);
  EXPECT_EQ(bar(cell_of((16 << 20) + 8, "all_gather")), 1);
  EXPECT_EQ(bar(cell_of(1 << 20, "broadcast")), 1);
}

TEST(Verdict, SlowerInEveryRoundIsSlower) {
  EXPECT_TRUE(Recorded().add(8, "us", Role::ours, steady(10)).add(8, "peer", Role::peer, steady(9)).only().slower());
  EXPECT_FALSE(Recorded().add(8, "us", Role::ours, steady(9)).add(8, "peer", Role::peer, steady(10)).only().slower());
}

TEST(Verdict, AnIntervalAroundTheBarIsNotSlower) {
  const Verdict verdict = Recorded()
                              .add(8, "us", Role::ours, steady(1))
                              .add(8, "peer", Role::peer, rounds({0.7, 0.8, 0.9, 0.95, 1.2, 1.3, 1.4}))
                              .only();
  EXPECT_LT(verdict.stock->value, 1);
  EXPECT_FALSE(verdict.slower());
}

TEST(Verdict, AllGatherHasItsOwnBar) {
  Recorded recorded;
  recorded.collective = "all_gather";
  recorded.add(1 << 20, "us", Role::ours, steady(1)).add(1 << 20, "peer", Role::peer, steady(0.95));
  EXPECT_FALSE(recorded.only().slower());
  EXPECT_TRUE(recorded.only().slower(1.1));
}

TEST(Verdict, BestSettingsHaveAColumn) {
  const Verdict verdict = Recorded()
                              .add(8, "us", Role::ours, steady(1))
                              .add(8, "peer", Role::peer, steady(2))
                              .add(8, "tuned", Role::best_setting, steady(0.5))
                              .only();
  EXPECT_EQ(verdict.stock->peer, "peer");
  ASSERT_TRUE(verdict.any);
  EXPECT_EQ(verdict.any->peer, "tuned");
  EXPECT_TRUE(verdict.slower());
}

TEST(Verdict, ThePeerAsItComesMayBeTheBestSetting) {
  const Verdict verdict = Recorded()
                              .add(8, "us", Role::ours, steady(1))
                              .add(8, "peer", Role::peer, steady(2))
                              .add(8, "tuned", Role::best_setting, steady(3))
                              .only();
  EXPECT_EQ(verdict.any->peer, "peer");
}

TEST(Verdict, TheBoundIsTheBetterOfItsTwo) {
  const Verdict verdict = Recorded()
                              .add(8, "us", Role::ours, steady(4))
                              .add(8, "plain", Role::bound, steady(3))
                              .add(8, "stream", Role::bound, steady(2))
                              .only();
  EXPECT_DOUBLE_EQ(verdict.roofline.value(), 0.5);
  EXPECT_FALSE(verdict.stock);
}

TEST(Summary, MeansWorstAndSlowerCells) {
  Recorded recorded;
  recorded.add(8, "us", Role::ours, steady(1)).add(8, "peer", Role::peer, steady(0.5));
  recorded.add(1 << 20, "us", Role::ours, steady(1)).add(1 << 20, "peer", Role::peer, steady(2));
  recorded.add(4 << 20, "us", Role::ours, steady(1)).add(4 << 20, "peer", Role::peer, steady(8));
  const Line line = recorded.line();
  const Summary summary = summarize(line, &Verdict::stock);
  EXPECT_DOUBLE_EQ(summary.all, 2);
  EXPECT_DOUBLE_EQ(summary.large, 4);
  ASSERT_NE(summary.worst, nullptr);
  EXPECT_EQ(summary.worst->cell.bytes, 8U);
  EXPECT_EQ(summary.slower, 1U);
  EXPECT_EQ(failures({line}, 1), 1U);
  EXPECT_EQ(failures({line}, 0.4), 0U);
  EXPECT_EQ(failures({line}, 3), 2U);
}

TEST(Summary, WorstFractionOfTheRoofline) {
  Recorded recorded;
  recorded.add(8, "us", Role::ours, steady(100)).add(8, "bound", Role::bound, steady(1));
  recorded.add(1 << 20, "us", Role::ours, steady(2)).add(1 << 20, "bound", Role::bound, steady(1));
  recorded.add(4 << 20, "us", Role::ours, steady(4)).add(4 << 20, "bound", Role::bound, steady(3));
  EXPECT_DOUBLE_EQ(worst_roofline(recorded.line(), 1 << 20).value(), 0.5);
  EXPECT_DOUBLE_EQ(worst_roofline(recorded.line(), 2 << 20).value(), 0.75);
  EXPECT_FALSE(worst_roofline(recorded.line(), 8 << 20));
}

TEST(Failures, ACellThatOursLeftOutIsOne) {
  Recorded recorded;
  recorded.add(8, "us", Role::ours, steady(1)).add(8, "peer", Role::peer, steady(2));
  recorded.add(1 << 20, "peer", Role::peer, steady(2));
  EXPECT_EQ(recorded.line().missing, std::vector<std::size_t>{1 << 20});
  EXPECT_EQ(failures({recorded.line()}, 1), 1U);
}

TEST(Judge, EachOfOursHasItsOwnLines) {
  Recorded recorded;
  recorded.add(8, "us-ordinary", Role::ours, steady(2)).add(8, "us-allocated", Role::ours, steady(1));
  recorded.add(8, "peer", Role::peer, steady(2));
  recorded.samples.cells[{2, true, "all_reduce", false, 8}] = recorded.samples.cells.begin()->second;
  const std::vector<Line> lines = judge(recorded.samples);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].ours, "us-allocated");
  EXPECT_DOUBLE_EQ(lines[0].verdicts.at(0).stock->value, 2);
  EXPECT_EQ(lines[1].ours, "us-ordinary");
  EXPECT_DOUBLE_EQ(lines[1].verdicts.at(0).stock->value, 1);
  EXPECT_TRUE(lines[2].verdicts.at(0).cell.back_to_back);
}

std::string sample(const std::string& contender, const std::string& role, const std::string& more) {
  return R"({"contender":")" + contender + R"(","role":")" + role +
         R"(","ranks":2,"round":1,"collective":"all_reduce","bytes":8,"in_place":false,"back_to_back":false,)" + more +
         "}\n";
}

TEST(ReadSamples, OneLineEach) {
  std::istringstream lines(sample("us", "ours", R"("microseconds":2.5,"calls":5,"wrong":0)"));
  const Samples samples = read_samples(lines);
  ASSERT_EQ(samples.cells.size(), 1U);
  EXPECT_EQ(samples.cells.begin()->first, cell_of(8));
  EXPECT_EQ(samples.cells.begin()->second.at("us").rounds, (Rounds{{1, 2.5}}));
}

TEST(ReadSamples, WhatWasLeftOutIsSaidOnce) {
  const std::string left_out = R"("left_out":"from 8 bytes up: a call takes 1 s")";
  std::istringstream lines(sample("peer", "peer", left_out) + sample("peer", "peer", left_out) +
                           R"({"contender":"mpich","left_out":"not installed"})" + "\n");
  const Samples samples = read_samples(lines);
  EXPECT_TRUE(samples.cells.empty());
  EXPECT_EQ(samples.notes,
            (std::vector<std::string>{"peer, 2 ranks, all_reduce, out of place: from 8 bytes up: a call takes 1 s",
                                      "mpich: not installed"}));
}

TEST(ReadSamples, AWrongResultIsNoTime) {
  std::istringstream lines(sample("peer", "peer", R"("microseconds":1,"calls":5,"wrong":3)") +
                           sample("us", "ours", R"("microseconds":1,"calls":5,"wrong":2)"));
  const Samples samples = read_samples(lines);
  EXPECT_TRUE(samples.cells.empty());
  EXPECT_EQ(samples.notes.size(), 2U);
  EXPECT_EQ(samples.wrong_of_ours, 2U);
}

TEST(ReadSamples, NamesTheLineThatIsNone) {
  for (const std::string bad : {"mpirun: hello", R"({"contender":"us"})"}) {
    std::istringstream lines(sample("us", "ours", R"("microseconds":2.5,"calls":5,"wrong":0)") + bad + "\n");
    try {
      read_samples(lines);
      ADD_FAILURE() << bad;
    } catch (const std::exception& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("line 2 is no sample")) << error.what();
    }
  }
}

TEST(Tables, SummaryThenEveryCell) {
  Recorded recorded;
  recorded.add(8, "us", Role::ours, steady(1)).add(8, "peer", Role::peer, steady(0.5));
  recorded.add(1 << 20, "us", Role::ours, steady(150)).add(1 << 20, "peer", Role::peer, steady(300));
  recorded.add(4 << 20, "peer", Role::peer, steady(1000));
  const std::vector<Table> all = tables(judge(recorded.samples));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].rows.size(), 1U);
  EXPECT_EQ(all[0].rows[0][1], "us");
  EXPECT_EQ(all[1].title, "2 ranks, all_reduce, out of place: us");
  using Row = std::vector<std::string>;
  EXPECT_EQ(all[1].rows[0], (Row{"8 B", "1.00", "0.50", "peer", "0.50", "0.50..0.50", "-", "slower"}));
  EXPECT_EQ(all[1].rows[1], (Row{"1 MiB", "150.0", "300.0", "peer", "2.00", "2.00..2.00", "-", ""}));
  EXPECT_EQ(all[1].rows[2].front(), "4 MiB");
  EXPECT_EQ(all[1].rows[2].back(), "missing");
}

TEST(Tables, BestSettingsAppearWhenThereAreSome) {
  Recorded recorded;
  recorded.add(8, "us", Role::ours, steady(1)).add(8, "peer", Role::peer, steady(2));
  const auto without = tables(judge(recorded.samples));
  recorded.add(8, "tuned", Role::best_setting, steady(0.5));
  const auto with = tables(judge(recorded.samples));
  ASSERT_EQ(without.size(), 2U);  // the table of the summary and that of the one line
  ASSERT_EQ(with.size(), 3U);
  EXPECT_EQ(with[0].rows[0][2], "2.00");
  EXPECT_EQ(with[1].rows[0][2], "0.50");
  EXPECT_EQ(with[2].head.size(), without[1].head.size() + 4);
}

TEST(Tables, AsTextAndAsMarkdown) {
  const Table table{"Title", {"name", "time"}, {{"a", "1.00"}, {"long", "10.00"}}};
  EXPECT_EQ(as_text(table),
            "Title\n"
            "  name   time\n"
            "  a      1.00\n"
            "  long  10.00\n");
  EXPECT_EQ(as_markdown(table),
            "### Title\n\n"
            "| name | time |\n"
            "| --- | --- |\n"
            "| a | 1.00 |\n"
            "| long | 10.00 |\n");
}

TEST(BytesText, LargestUnitThatDivides) {
  EXPECT_EQ(bytes_text(8), "8 B");
  EXPECT_EQ(bytes_text(2048), "2 KiB");
  EXPECT_EQ(bytes_text(2049), "2049 B");
  EXPECT_EQ(bytes_text(64 << 20), "64 MiB");
}

}  // namespace
}  // namespace collectives::compare
