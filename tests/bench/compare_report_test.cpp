// Tests of the report program of scripts/compare.sh, which writes tables and plots from samples. They run it as the
// script does, on samples that were recorded on a machine with two cores. They have seven rounds, each of which timed
// every library once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCompareReport[], kCompareSamples[];

namespace collectives::compare {
namespace {

using testing::Outcome;
using testing::run_command;

constexpr int kRefused = 2 << 8;  // result of pclose() for exit status 2: wrong arguments or samples
constexpr int kFailed = 1 << 8;

class Report : public ::testing::Test {
 protected:
  Report() {
    std::string name = ::testing::TempDir() + "compare_report_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream(folder_ / "header.txt") << "a machine\na command\n";
  }
  ~Report() override { std::filesystem::remove_all(folder_); }

  Outcome report(const std::string& samples, const std::string& more = "") const {
    return run_command(std::string(kCompareReport) + " --samples " + samples + " --header " +
                       (folder_ / "header.txt").string() + " --output " + (folder_ / "out").string() + " " + more);
  }

  std::string contents(const std::string& name) const {
    std::ifstream file(folder_ / "out" / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Writes the recorded samples, without the lines that contain `drop`, to a file and returns its path.
  std::string recorded_without(const std::string& drop) const {
    const std::string path = folder_ / "samples";
    std::ifstream from(kCompareSamples);
    std::ofstream to(path);
    for (std::string line; std::getline(from, line);) {
      if (line.find(drop) == std::string::npos) to << line << '\n';
    }
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(Report, SaysWhatWasMeasuredWhereAndHowItCompares) {
  const Outcome outcome = report(kCompareSamples);
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  const std::string text = contents("table.txt");
  EXPECT_EQ(outcome.out, text);
  EXPECT_TRUE(text.starts_with("# a machine\n# a command\n")) << text;
  for (const std::string expected :
       {"Summary: best peer as it comes / ours", "Summary: best setting of any peer / ours",
        "2 ranks, all_reduce, out of place: collectives-ordinary",
        "2 ranks, all_reduce, back to back: collectives-ordinary", "2 MiB", "openmpi", "best setting"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected;
  }
  EXPECT_NE(contents("table.md").find("| bytes | ours (us) |"), std::string::npos);
}

TEST_F(Report, IsTheSameEveryTime) { EXPECT_EQ(report(kCompareSamples).out, report(kCompareSamples).out); }

TEST_F(Report, DrawsAPlotThatGnuplotTakes) {
  ASSERT_EQ(report(kCompareSamples).status, 0);
  const std::string program = contents("plot_2_ranks.gnuplot");
  EXPECT_NE(program.find("plot_2_ranks.svg"), std::string::npos);
  if (run_command("command -v gnuplot").status != 0) GTEST_SKIP() << "gnuplot is not installed";
  const Outcome drawn = run_command("gnuplot " + (folder_ / "out" / "plot_2_ranks.gnuplot").string());
  EXPECT_EQ(drawn.status, 0) << drawn.out;
  EXPECT_NE(contents("plot_2_ranks.svg").find("</svg>"), std::string::npos);
}

TEST_F(Report, FailsWhenACellIsSlower) {
  EXPECT_EQ(report(kCompareSamples, "--fail-below 0.01").status, 0);
  EXPECT_EQ(report(kCompareSamples, "--fail-below 1000").status, kFailed);
  EXPECT_EQ(report(kCompareSamples).status, 0);  // without --fail-below a slower cell is no failure
}

TEST_F(Report, SaysWhereOursIsMissing) {
  std::string samples = recorded_without("nothing of this kind");
  std::ofstream(samples, std::ios::app)
      << R"({"contender":"openmpi","role":"peer","ranks":2,"round":1,"collective":"all_reduce","bytes":4096,)"
      << R"("in_place":false,"back_to_back":false,"microseconds":1,"calls":5,"wrong":0})" << '\n';
  EXPECT_EQ(report(samples).status, 0);
  EXPECT_NE(contents("table.txt").find("missing"), std::string::npos);
}

TEST_F(Report, FailsWhenOursIsWrong) {
  std::string samples = recorded_without("nothing of this kind");
  std::ofstream(samples, std::ios::app)
      << R"({"contender":"collectives-ordinary","role":"ours","ranks":2,"round":1,"collective":"all_reduce",)"
      << R"("bytes":8,"in_place":false,"back_to_back":false,"microseconds":1,"calls":5,"wrong":7})" << '\n';
  const Outcome outcome = report(samples);
  EXPECT_EQ(outcome.status, kFailed);
  EXPECT_NE(outcome.out.find("WRONG: 7 elements"), std::string::npos) << outcome.out;
}

TEST_F(Report, RefusesToJudgeFewerThanSevenRounds) {
  const Outcome outcome = report(recorded_without(R"("round":7)"), "--fail-below 1");
  EXPECT_EQ(outcome.status, kRefused);
  EXPECT_NE(outcome.out.find("6 rounds: --fail-below needs at least 7"), std::string::npos) << outcome.out;
}

TEST_F(Report, NothingToReadOrNothingOfOurs) {
  EXPECT_EQ(report("/nowhere").status, kRefused);
  const Outcome outcome = report(recorded_without("collectives-ordinary"));
  EXPECT_EQ(outcome.status, kRefused);
  EXPECT_NE(outcome.out.find("no times of ours"), std::string::npos) << outcome.out;
  EXPECT_EQ(report(kCompareSamples, "--color").status, kRefused);
}

}  // namespace
}  // namespace collectives::compare
