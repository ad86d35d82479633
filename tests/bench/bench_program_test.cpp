// Tests of the benchmark programs, which they run: exit status, errors of one line, and reports in formats that other
// programs read.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "bench/program_files.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesBench[], kCollectivesInfo[], kCollectivesRun[];

namespace {

using collectives::parse_json;
using collectives::testing::read_json_lines;
using collectives::testing::ScratchFile;

const std::string kBench = kCollectivesBench, kInfo = kCollectivesInfo, kRun = kCollectivesRun;

struct Outcome {
  int status = -1;
  std::string text;  // output of the program, stdout and stderr together
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part{};
  while (const std::size_t bytes = fread(part.data(), 1, part.size(), pipe)) outcome.text.append(part.data(), bytes);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

void expect_one_line_and_two(const std::string& command, const std::string& word) {
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.status, 2) << command << "\n" << outcome.text;
  EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 1) << outcome.text;
  EXPECT_NE(outcome.text.find(word), std::string::npos) << outcome.text;
}

TEST(BenchProgram, ShowsATableAndEndsWithZero) {
  const Outcome outcome = run(kBench + " all --bootstrap threads:2 --max-bytes 1K --iterations 3");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (const char* word :
       {"busbw", "#wrong", "p99", "2 ranks", "usable cores", "transport local", "barrier", "wrong elements: 0"}) {
    EXPECT_NE(outcome.text.find(word), std::string::npos) << word << " is missing in\n" << outcome.text;
  }
}

TEST(BenchProgram, ShowsOneHalfOfTheTableIfACollectiveHasNoFormInPlace) {
  const std::string measure = kBench + " --bootstrap threads:2 --min-bytes 8 --max-bytes 8 --iterations 3 ";
  const auto shows = [](const Outcome& outcome, const char* word) {
    return outcome.text.find(word) != std::string::npos;
  };
  for (const std::string collective : {"barrier", "sendrecv"})
    for (const std::string placement : {"both", "yes", "no"}) {
      const Outcome outcome = run(measure + collective + " --in-place " + placement);
      ASSERT_EQ(outcome.status, 0) << outcome.text;
      EXPECT_TRUE(shows(outcome, " out-of-place")) << outcome.text;
      EXPECT_FALSE(shows(outcome, " in-place")) << outcome.text;
      // Each half has one column of this name.
      EXPECT_EQ(outcome.text.find("busbw"), outcome.text.rfind("busbw")) << outcome.text;
    }
  const Outcome outcome = run(measure + "all_reduce");
  EXPECT_TRUE(shows(outcome, " out-of-place") && shows(outcome, " in-place")) << outcome.text;
}

TEST(BenchProgram, RunsAlone) {
  const Outcome outcome = run(kBench + " all --max-bytes 64 --iterations 3");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST(BenchProgram, ReportsAreJsonAndCsv) {
  const ScratchFile json(".json"), csv(".csv");
  const Outcome outcome =
      run(kBench + " all_reduce,all_gather --bootstrap threads:3 --max-bytes 64 --factor 8 --iterations 3 --json " +
          json.path() + " --csv " + csv.path());
  ASSERT_EQ(outcome.status, 0) << outcome.text;

  const auto lines_of_json = read_json_lines(json.path());
  // Setting, results and summary: 0, 8 and 64 bytes, each out of place and in place.
  ASSERT_EQ(lines_of_json.size(), 1 + 12 + 1);
  EXPECT_EQ(lines_of_json.front().at("kind"), "setting");
  EXPECT_EQ(lines_of_json.front().at("ranks"), "3 ranks (1 host)");
  EXPECT_EQ(lines_of_json.back().at("kind"), "summary");
  EXPECT_EQ(lines_of_json.back().at("wrong"), 0);
  const std::vector rows(lines_of_json.begin() + 1, lines_of_json.end() - 1);
  EXPECT_EQ(rows[4].at("kind"), "result");
  EXPECT_EQ(rows[4].at("collective"), "all_reduce");
  EXPECT_EQ(rows[4].at("size_bytes"), 64);
  EXPECT_EQ(rows[4].at("count"), 16);
  EXPECT_EQ(rows[4].at("buffers"), "ordinary");
  EXPECT_FALSE(rows[4].contains("samples_us"));
  EXPECT_EQ(rows[11].at("collective"), "all_gather");
  EXPECT_EQ(rows[11].at("size_bytes"), 72);  // six floats from each of three ranks
  EXPECT_EQ(rows[11].at("count"), 6);
  EXPECT_EQ(rows[11].at("in_place"), true);

  std::ifstream csv_file(csv.path());
  std::string line;
  std::size_t lines = 0, commas = 0;
  while (std::getline(csv_file, line)) {
    const auto here = static_cast<std::size_t>(std::ranges::count(line, ','));
    if (lines++ == 0) commas = here;
    EXPECT_EQ(here, commas) << line;
  }
  EXPECT_EQ(lines, 1 + rows.size());
}

TEST(BenchProgram, ReportsHoldTheBoundAndTheSamples) {
  const ScratchFile json(".json");
  const Outcome outcome = run(kBench +
                              " all_reduce --bootstrap threads:2 --max-bytes 4K --factor 512 --iterations 4 --rotate "
                              "64K --fraction-of-roofline --samples --json " +
                              json.path());
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("fraction"), std::string::npos) << outcome.text;
  const auto lines = read_json_lines(json.path());
  ASSERT_EQ(lines.size(), 1 + 6 + 1);
  EXPECT_EQ(lines.front().at("rotate_bytes"), 65536);
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto& row = lines[i];
    EXPECT_EQ(row.at("samples_us").size(), 4);
    if (row.at("size_bytes") == 0) {
      EXPECT_TRUE(row.at("fraction_of_roofline").is_null());
    } else {
      EXPECT_DOUBLE_EQ(row.at("fraction_of_roofline"),
                       row.at("roofline_us").get<double>() / row.at("time_us").get<double>());
    }
  }
}

TEST(BenchProgram, AMistakeIsOneLineAndStatusTwo) {
  expect_one_line_and_two(kBench + " --type f8", "bf16");
  expect_one_line_and_two(kBench + " --frobnicate", "--iterations");
  expect_one_line_and_two(kBench + " --bootstrap threads:2 --root 2", "0 to 1");
  expect_one_line_and_two(kBench + " --bootstrap threads:2 --json /no/such/directory/file", "--json");
  expect_one_line_and_two(kBench + " --bootstrap threads:2 --against mpi", "mpirun");
}

TEST(BenchProgram, AMistakeOfManyRanksIsStillOneLine) {
  for (const std::string mistake : {"--op mean", "--root 7"}) {
    const Outcome outcome = run(kRun + " -n 3 " + kBench + " " + mistake);
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    const std::string said = "collectives_bench: ";
    const std::size_t first = outcome.text.find(said);
    ASSERT_NE(first, std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find(said, first + 1), std::string::npos) << outcome.text;
  }
}

TEST(BenchProgram, AVariableThatTheLibraryRefusesIsOneLineFromRankZero) {
  for (const std::string variable :
       {"COLLECTIVES_TIMEOUT=soon", "COLLECTIVES_BACKEND=smoke", "COLLECTIVES_PORT=http"}) {
    for (const std::string& start : {kRun + " -n 3 " + kBench, kBench + " --bootstrap threads:3"}) {
      // Ranks that are threads need no port.
      if (variable.starts_with("COLLECTIVES_PORT") && start.starts_with(kBench)) continue;
      const Outcome outcome = run(variable + " " + start + " all_reduce --max-bytes 64");
      EXPECT_EQ(outcome.status, 2) << variable << "\n" << outcome.text;
      const std::string said = "collectives_bench: ";
      const std::size_t first = outcome.text.find(said);
      ASSERT_NE(first, std::string::npos) << outcome.text;
      EXPECT_EQ(outcome.text.find(said, first + 1), std::string::npos) << outcome.text;
      EXPECT_TRUE(outcome.text.find("valid is ") != std::string::npos ||
                  outcome.text.find("known: ") != std::string::npos)
          << outcome.text;
    }
  }
}

TEST(InfoProgram, AVariableThatTheLibraryRefusesIsOneLine) {
  expect_one_line_and_two("COLLECTIVES_CORES=many " + kInfo, "1 to 65536");
  expect_one_line_and_two("COLLECTIVES_TIMEOUT=soon " + kInfo + " explain", "seconds");
  expect_one_line_and_two("COLLECTIVES_BACKEND=smoke " + kInfo + " --json", "hierarchical");
}

TEST(BenchProgram, AReportThatCannotBeWrittenIsAFailure) {
  const std::string measure = kBench + " --bootstrap threads:2 --max-bytes 8 --iterations 3";
  for (const std::string& command :
       {measure + " >/dev/full", measure + " >&-", kBench + " --help >/dev/full", measure + " --json /dev/full",
        measure + " --csv /dev/full", "bash -o pipefail -c 'trap \"\" PIPE; { sleep 0.2; " + measure + "; } | :'"}) {
    const Outcome outcome = run("{ " + command + "; }");
    EXPECT_EQ(outcome.status, 1) << command << "\n" << outcome.text;
    EXPECT_NE(outcome.text.find("writ"), std::string::npos) << command << "\n" << outcome.text;
  }
}

TEST(InfoProgram, SaysWhatIsHere) {
  const Outcome outcome = run(kInfo + " --json");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const auto info = parse_json(outcome.text);
  EXPECT_EQ(info.at("backends").at("ring"), "available");
  EXPECT_TRUE(info.at("backends").contains("nccl"));
  EXPECT_GE(info.at("machine").at("cores usable"), 1);
  EXPECT_TRUE(info.at("shared memory").contains("sealed memfd"));
  EXPECT_EQ(info.at("shared memory").at("allocated memory").get<std::string>().find("8 MiB: "), 0u);
  EXPECT_EQ(run(kInfo).status, 0);
}

TEST(InfoProgram, SaysWhereTheTuningComesFrom) {
  const auto tuning = [](const std::string& environment) {
    const Outcome outcome = run("env -u XDG_CACHE_HOME " + environment + " " + kInfo + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    return parse_json(outcome.text).at("tuning");
  };
  const ScratchFile file(".tuning.json");
  std::ofstream(file.path()) << R"({"inline_bytes": 55})";
  const auto given = tuning("COLLECTIVES_TUNING=" + file.path());
  EXPECT_NE(given.at("in force").get<std::string>().find(file.path()), std::string::npos);
  EXPECT_EQ(given.at("numbers").at("inline_bytes"), 55);
  EXPECT_NE(tuning("COLLECTIVES_TUNING=default").at("in force").get<std::string>().find("built-in"), std::string::npos);
  const auto nothing = tuning("COLLECTIVES_TUNING= HOME=/nonexistent");
  EXPECT_NE(nothing.at("in force").get<std::string>().find("measured"), std::string::npos);
  EXPECT_EQ(nothing.at("kept in"), "/nonexistent/.cache/collectives/tuning.json");
  EXPECT_EQ(tuning("COLLECTIVES_TUNING= XDG_CACHE_HOME=/there").at("kept in"), "/there/collectives/tuning.json");
  EXPECT_NE(tuning("-u HOME COLLECTIVES_TUNING=").at("kept in").get<std::string>().find("nowhere"), std::string::npos);

  const Outcome explained = run("COLLECTIVES_TUNING=" + file.path() + " " + kInfo + " explain broadcast --bytes 48");
  EXPECT_NE(explained.text.find("inline up to 55 B"), std::string::npos) << explained.text;
  EXPECT_NE(explained.text.find("tuning: " + file.path()), std::string::npos) << explained.text;
  expect_one_line_and_two("COLLECTIVES_TUNING=/nonexistent.json " + kInfo, "/nonexistent.json");
}

TEST(InfoProgram, PrintsOneErrorForAMalformedTuningCache) {
  const ScratchFile file(".cache");  // the name of a folder here
  std::filesystem::create_directories(file.path() + "/collectives");
  const std::string cache = file.path() + "/collectives/tuning.json";
  for (const std::string& text :
       {std::string("{"), std::string(2 << 20, '['), std::string(R"({"entries":[{"of":7}]})"),
        std::string(R"({"entries":[{"of":{"ranks":"many"}}]})"),
        std::string(R"({"entries":[{"of":{"ranks":2,"cores":1e99,"kernel copies":1,"barrier ns":"x"}}]})")}) {
    std::ofstream(cache) << text;
    for (const char* flags : {" --json", ""}) {
      const Outcome outcome = run("env -u COLLECTIVES_TUNING XDG_CACHE_HOME=" + file.path() + " " + kInfo + flags);
      EXPECT_EQ(outcome.status, 0) << outcome.text;
      EXPECT_NE(outcome.text.find(cache + ": "), std::string::npos) << outcome.text;
      EXPECT_EQ(outcome.text.find("json.exception"), std::string::npos) << outcome.text;
    }
  }
  std::filesystem::remove_all(file.path());
}

TEST(BenchProgram, WritesItsFilesThroughNoPlantedLink) {
  const ScratchFile victim(".victim"), link(".json");
  std::ofstream(victim.path()) << "secret";
  std::filesystem::create_symlink(victim.path(), link.path());
  expect_one_line_and_two(kBench + " all_reduce --bootstrap threads:2 --max-bytes 1K --json " + link.path(),
                          "symbolic link");
  EXPECT_EQ(std::filesystem::file_size(victim.path()), 6u);
  const Outcome piped =
      run(kBench + " all_reduce --bootstrap threads:2 --max-bytes 1K --iterations 1 --json /dev/stdout | grep -c kind");
  EXPECT_EQ(piped.status, 0) << piped.text;
}

TEST(InfoProgram, ExplainsAMachineThatIsNotHere) {
  const Outcome one = run(kInfo + " explain all_reduce --bytes 64M --ranks 64 --ranks-per-host 8");
  EXPECT_EQ(one.status, 0) << one.text;
  EXPECT_NE(one.text.find("64 ranks (8 hosts x 8)"), std::string::npos) << one.text;
  const Outcome table = run(kInfo + " explain all_gather --ranks 4 --sizes --backend ring");
  EXPECT_EQ(table.status, 0) << table.text;
  EXPECT_NE(table.text.find("1073741824"), std::string::npos) << table.text;
}

TEST(InfoProgram, SimulatesAMachineThatIsNotHere) {
  const Outcome one = run(kInfo +
                          " simulate all_reduce --bytes 100M --hosts 512 --ranks-per-host 8 --link 100gbit --latency "
                          "5us --uplink 400gbit --hosts-per-switch 16");
  EXPECT_EQ(one.status, 0) << one.text;
  for (const char* word : {"4096 ranks (512 hosts x 8)", "100 Gbit/s and 5 us", "simulated: ", "the wire needs: ",
                           "out of the busiest host", "events played in", "1 of 32 switches"})
    EXPECT_NE(one.text.find(word), std::string::npos) << word << " is missing in\n" << one.text;
  const Outcome all = run(kInfo + " simulate broadcast --hosts 4 --root 3 --all");
  EXPECT_EQ(all.status, 0) << all.text;
  EXPECT_NE(all.text.find("reduce_to_one_tree"), std::string::npos) << all.text;
  const Outcome table = run(kInfo + " simulate reduce --hosts 3 --ranks-per-host 2 --sizes --backend ring");
  EXPECT_EQ(table.status, 0) << table.text;
  EXPECT_NE(table.text.find("1073741824"), std::string::npos) << table.text;
}

TEST(InfoProgram, AMistakeInASimulationIsOneLineAndStatusTwo) {
  expect_one_line_and_two(kInfo + " simulate all_redcue", "reduce_scatter");
  expect_one_line_and_two(kInfo + " simulate --link 100", "100gbit");
  expect_one_line_and_two(kInfo + " simulate --link 0gbit", "100gbit");
  expect_one_line_and_two(kInfo + " simulate --latency soon", "5us");
  expect_one_line_and_two(kInfo + " simulate --uplink 1gbit", "--hosts-per-switch");
  expect_one_line_and_two(kInfo + " simulate --hosts-per-switch 2", "--uplink");
  expect_one_line_and_two(kInfo + " simulate --backend rign", "hierarchical");
  expect_one_line_and_two(kInfo + " simulate --hosts 4 --root 4", "0 to 3");
  expect_one_line_and_two(kInfo + " simulate --hosts 262144 --ranks-per-host 8", "262144");
  expect_one_line_and_two(kInfo + " simulate --tuning /nonexistent.json", "/nonexistent.json");
  expect_one_line_and_two(kInfo + " simulate --frobnicate", "--ranks-per-host");
}

TEST(InfoProgram, AMistakeIsOneLineAndStatusTwo) {
  expect_one_line_and_two(kInfo + " --frobnicate", "--json");
  expect_one_line_and_two(kInfo + " explain all_redcue", "reduce_scatter");
  expect_one_line_and_two(kInfo + " explain all_reduce --backend rign", "hierarchical");
  expect_one_line_and_two(kInfo + " explain all_reduce --bytes much", "64K");
  expect_one_line_and_two(kInfo + " explain all_reduce --ranks 0", "1");
  expect_one_line_and_two(kInfo + " explain all_reduce --type i8 --op pre_scaled_sum", "f32");
  expect_one_line_and_two(kInfo + " explain reduce --ranks 4 --root 4", "0 to 3");
}

}  // namespace
