// Tests of the sub-command `guidelines` of collectives_bench, as a program: it finds planted violations, and its exit
// status tells what it found.
//
// A violation is planted by a tuning file. Its prices make the library choose messages for vectors on one side of a
// cut-off, and its frames of 64 B make these messages slow. A long call then takes ten to eighty times as long as by
// the algorithm on the other side, also on a busy machine.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "bench/program_files.hpp"
#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesBench[], kCollectivesRun[];

namespace collectives::testing {
namespace {

const std::string kGuidelines = std::string(kCollectivesBench) + " guidelines ";
const std::string kTwoThreads = kGuidelines + "--bootstrap threads:2 --judge-busy ";
const std::string kTwoProcesses = std::string(kCollectivesRun) + " -n 2 " + kGuidelines + "--judge-busy ";

int status_of(const Outcome& outcome) { return WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -1; }

bool has(const Outcome& outcome, const std::string& text) { return outcome.out.find(text) != std::string::npos; }

/// Runs a command with a tuning file of this content.
Outcome run_with_tuning(const std::string& tuning, const std::string& command) {
  const ScratchFile file(".guidelines.json");
  std::ofstream(file.path()) << tuning;
  return run_command("COLLECTIVES_TUNING=" + file.path() + " " + command);
}

/// Expects that the program finds the violation, with ranks that are threads and with processes.
void expect_violation(const std::string& tuning, const std::string& arguments, const std::string& found) {
  for (const std::string& start : {kTwoThreads, kTwoProcesses}) {
    const Outcome outcome = run_with_tuning(tuning, start + arguments);
    EXPECT_EQ(status_of(outcome), 1) << outcome.out;
    EXPECT_TRUE(has(outcome, found)) << "no \"" << found << "\" in\n" << outcome.out;
    EXPECT_TRUE(has(outcome, "left side: ") && has(outcome, "estimate: ")) << "no plans in\n" << outcome.out;
  }
}

// Cut-off: all vectors are too long for the hierarchical algorithm, which would be the faster one.
TEST(GuidelinesProgram, FindsAForcedBackendThatIsFasterThanAuto) {
  expect_violation(R"({"host_us_per_byte": 1, "frame_bytes": 64})",
                   "all_reduce --guidelines backend --backend hierarchical --min-bytes 32K --max-bytes 32K",
                   "VIOLATED backend: all_reduce by hierarchical, f32 sum, 32768 B");
}

// Cut-off: an all-reduce below 250,000 bytes travels in messages.
TEST(GuidelinesProgram, FindsAVectorThatIsFasterThanAShorterOne) {
  expect_violation(
      R"({"host_latency_us": 1000, "host_us_per_byte": 1e-4, "message_us": 0, "message_us_per_byte": 0.004,
          "frame_bytes": 64})",
      "all_reduce --guidelines monotony --min-bytes 128K --max-bytes 512K",
      "VIOLATED monotony: all_reduce, f32 sum, 131072 B");
}

// Cut-off: a gather below 31,000 bytes travels in messages, and an all-gather below half of it.
TEST(GuidelinesProgram, FindsAGatherThatIsSlowerThanAnAllGather) {
  expect_violation(
      R"({"host_latency_us": 62.5, "host_us_per_byte": 1e-4, "message_us": 0, "message_us_per_byte": 0.004,
          "frame_bytes": 64})",
      "gather --guidelines gather --min-bytes 24K --max-bytes 24K", "VIOLATED gather: gather, f32 none, 24576 B");
}

TEST(GuidelinesProgram, EndsWithZeroIfEveryGuidelineHolds) {
  // An all-reduce of 4 MiB takes hundreds of times as long as one of 8 B.
  for (const std::string& start : {kTwoThreads, kTwoProcesses}) {
    const Outcome outcome =
        run_command(start + "all_reduce --guidelines monotony --min-bytes 8 --max-bytes 4M --factor 524288");
    EXPECT_EQ(status_of(outcome), 0) << outcome.out;
    EXPECT_TRUE(has(outcome, "# 1 comparisons: 1 hold, 0 violated, 0 left out")) << outcome.out;
  }
}

TEST(GuidelinesProgram, TableHoldsEveryGuidelineOfManyRanks) {
  // Five ranks are more than this machine has cores, or not. The violations on a busy machine do not matter here.
  const Outcome outcome =
      run_command(kGuidelines + "--bootstrap threads:5 --judge-busy --max-bytes 1K --factor 64 " + "--iterations 3");
  EXPECT_LE(status_of(outcome), 1) << outcome.out;
  const Outcome help = run_command(kGuidelines + "--help");
  for (const char* name : {"all_reduce_parts", "all_reduce_root", "gather", "scatter", "all_gather", "split",
                           "monotony", "near_monotony", "backend", "in_place", "allocated", "group", "persistent"}) {
    EXPECT_TRUE(has(outcome, "\n " + std::string(name) + " ")) << name << " is missing in\n" << outcome.out;
    EXPECT_TRUE(has(help, std::string(name) + " ")) << name << " is missing in\n" << help.out;
  }
  EXPECT_TRUE(has(outcome, "# left out: backend ring: refused: all_to_all")) << outcome.out;
}

TEST(GuidelinesProgram, FileHasOneObjectForEachGuidelineAndSize) {
  const ScratchFile json(".guidelines_report.json");
  const Outcome outcome = run_command(kTwoThreads +
                                      "gather,reduce --guidelines persistent,backend --backend ring --min-bytes 64 "
                                      "--max-bytes 256 --factor 4 --iterations 20 --json " +
                                      json.path());
  EXPECT_LE(status_of(outcome), 1) << outcome.out;
  const auto lines = read_json_lines(json.path());
  ASSERT_EQ(lines.size(), 1 + 8 + 1);
  EXPECT_EQ(lines.front().at("kind"), "setting");
  EXPECT_EQ(lines.back().at("kind"), "summary");
  EXPECT_EQ(lines.back().at("left_out"), 2);
  const std::vector rows(lines.begin() + 1, lines.end() - 1);
  EXPECT_EQ(rows[1].at("guideline"), "persistent");
  EXPECT_EQ(rows[1].at("collective"), "gather");
  EXPECT_EQ(rows[1].at("size_bytes"), 256);
  EXPECT_GE(rows[1].at("runs").size(), 1);
  EXPECT_LE(rows[1].at("low"), rows[1].at("ratio"));
  EXPECT_LE(rows[1].at("ratio"), rows[1].at("high"));
  EXPECT_EQ(rows[4].at("guideline"), "backend");
  EXPECT_EQ(rows[4].at("verdict"), "left out");
  EXPECT_NE(rows[4].at("reason").get<std::string>().find("gather"), std::string::npos);
}

TEST(GuidelinesProgram, WaitsOnABusyMachineAndThenEndsWithOneLineAndStatusThree) {
  // Twice as many busy threads as cores that the ranks may use. On a machine with many cores, the test uses two.
  cpu_set_t all, few;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&few);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < 2; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &few);
  if (CPU_COUNT(&few) < 2) GTEST_SKIP() << "two ranks on one core have no limit that other programs exceed";
  ASSERT_EQ(sched_setaffinity(0, sizeof few, &few), 0);
  std::atomic<bool> stop{false};
  std::vector<std::jthread> busy;
  for (int i = 0; i < 4; ++i)
    busy.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) continue;
    });
  const auto begun = std::chrono::steady_clock::now();
  const Outcome outcome = run_command(kGuidelines + "--bootstrap threads:2 all_reduce --max-bytes 1K");
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15));
  stop = true;
  sched_setaffinity(0, sizeof all, &all);
  EXPECT_EQ(status_of(outcome), 3) << outcome.out;
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1) << outcome.out;
  EXPECT_TRUE(has(outcome, "too busy") && has(outcome, "--judge-busy")) << outcome.out;
}

TEST(GuidelinesProgram, MistakeIsOneLineAndStatusTwo) {
  for (const auto& [arguments, word] : std::vector<std::pair<std::string, std::string>>{
           {"--guidelines spilt", "split"},
           {"--frobnicate", "--judge-busy"},
           {"--bootstrap threads:1", "2 ranks"},
           {"--bootstrap threads:2 --root 2", "0 to 1"},
           {"--bootstrap threads:2 barrier --guidelines split", "no guideline"},
           {"--bootstrap threads:2 --json /no/such/directory/file", "--json"}}) {
    const Outcome outcome = run_command(kGuidelines + arguments);
    EXPECT_EQ(status_of(outcome), 2) << outcome.out;
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1) << outcome.out;
    EXPECT_TRUE(has(outcome, word)) << outcome.out;
  }
}

TEST(GuidelinesProgram, ReportThatCannotBeWrittenIsAFailure) {
  const std::string measure =
      kTwoThreads + "all_reduce --guidelines persistent --min-bytes 8 --max-bytes 8 --iterations 3";
  for (const std::string& command : {measure + " >/dev/full", measure + " --json /dev/full"}) {
    const Outcome outcome = run_command("{ " + command + "; }");
    EXPECT_EQ(status_of(outcome), 1) << outcome.out;
    EXPECT_TRUE(has(outcome, "writ")) << outcome.out;
  }
}

}  // namespace
}  // namespace collectives::testing
