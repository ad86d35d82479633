// Tests of the harness of scripts/compare.sh, which times every compared library (contender) in the same way. They
// check its barrier, its checks of results, and its wait for a quiet machine. Further tests run the programs that use
// it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "harness.hpp"
#include "noise.hpp"
#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kCompareCollectives[], kCompareRoofline[];

namespace collectives::compare {
namespace {

using testing::run_command;

/// A folder with an empty file for SyncFile. The destructor removes it.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "compare_XXXXXX";
    path_ = ::mkdtemp(name.data());
    std::ofstream(path_ / "sync_file").flush();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string sync_file() const { return path_ / "sync_file"; }
  std::string output() const { return path_ / "samples"; }

  std::vector<nlohmann::json> samples() const {
    std::vector<nlohmann::json> result;
    std::ifstream file(output());
    for (std::string line; std::getline(file, line);) result.push_back(parse_json(line));
    return result;
  }

 private:
  std::filesystem::path path_;
};

/// Calls rank_main(sync) in one thread per rank.
template <class F>
void on_threads(int ranks, F&& rank_main) {
  const Folder folder;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SyncFile sync(folder.sync_file(), rank, ranks, true);
      rank_main(sync);
    });
  }
}

TEST(SyncFile, NoRankLeavesTheBarrierBeforeAllHaveEntered) {
  constexpr int kRanks = 4, kRounds = 200;
  std::atomic<int> arrivals = 0, early = 0;
  on_threads(kRanks, [&](SyncFile& sync) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrivals;
      sync.barrier();
      if (arrivals < round * kRanks) ++early;
    }
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(arrivals, kRanks * kRounds);
}

TEST(SyncFile, EveryRankReadsEveryWord) {
  std::atomic<int> wrong = 0;
  on_threads(3, [&](SyncFile& sync) {
    for (std::uint64_t round = 0; round < 50; ++round) {
      const auto words = sync.exchange(10 * round + static_cast<std::uint64_t>(sync.rank()));
      if (words != std::vector<std::uint64_t>{10 * round, 10 * round + 1, 10 * round + 2}) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(SyncFile, ALongWaitProgressesTheLibrary) {
  std::atomic<bool> progressed = false;
  on_threads(2, [&](SyncFile& sync) {
    if (sync.rank() == 0) {
      sync.while_waiting([&] { progressed = true; });
    } else {
      while (!progressed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    sync.barrier();
  });
  EXPECT_TRUE(progressed);
}

/// A contender for one rank, in which every collective is a copy.
class Alone : public Contender {
 public:
  void all_reduce(const float* in, float* out, std::size_t count) override { copy(in, out, count); }
  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    copy(in, out, part);
    return out;
  }
  void all_gather(const float* in, float* out, std::size_t part) override { copy(in, out, part); }
  void broadcast(float* data, std::size_t /*count*/) override { addresses.push_back(data); }

  std::vector<const float*> addresses;  ///< address of the result of each call

 private:
  void copy(const float* in, float* out, std::size_t count) {
    addresses.push_back(out);
    if (in != out) std::copy_n(in, count, out);
  }
};

/// Returns the exit status of run_contender for a world of one rank.
int run_alone(const Folder& folder, const std::vector<std::string>& more, const ContenderFactory& make) {
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "1", 1);
  std::vector<std::string> arguments{
      "contender", "--sync-file", folder.sync_file(), "--output", folder.output(), "--contender", "alone",
      "--role",    "peer",        "--round",          "3",        "--factor",      "64",          "--seconds-per-cell",
      "0.001"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return run_contender(static_cast<int>(pointers.size()), pointers.data(), make);
}

ContenderFactory alone() {
  return [](SyncFile&, const std::string&) { return std::make_unique<Alone>(); };
}

TEST(Harness, OneLineForEachCell) {
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "8K", "--in-place", "both", "--back-to-back", "8"}, alone()), 0);
  const auto samples = folder.samples();
  // 3 sizes (8 B, 512 B, 8 KiB) of 4 collectives, each out of place and in place, but broadcast in one form only. One
  // more sample is that of back-to-back calls.
  ASSERT_EQ(samples.size(), 3U * 7 + 1);
  for (const auto& sample : samples) {
    EXPECT_EQ(sample.at("wrong"), 0) << sample;
    EXPECT_GT(sample.at("microseconds"), 0) << sample;
    EXPECT_GE(sample.at("calls"), 5) << sample;
    EXPECT_EQ(sample.at("round"), 3) << sample;
  }
  EXPECT_EQ(samples.back().at("back_to_back"), true);
}

/// A contender for one rank with every operation. A single rank has no partner, and its exclusive scan has no result.
class AloneWithEverything final : public Alone {
 public:
  bool offers(Operation, bool) const override { return true; }
  void exchange(const Exchange& x) override {
    if (x.operation != Operation::ping_pong && x.operation != Operation::exclusive_scan && x.in != x.out)
      std::copy_n(x.in, x.counts.empty() ? x.count : x.own(), x.out);
  }
};

TEST(Harness, TimesEveryOperation) {
  const Folder folder;
  std::string all;
  for (const Operation operation : kTimed) all.append(all.empty() ? "" : ",").append(to_string(operation));
  const auto make = [](SyncFile&, const std::string&) { return std::make_unique<AloneWithEverything>(); };
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "512", "--in-place", "both", "--collectives", all}, make), 0);
  // 2 sizes of 14 operations, out of place and in place, but broadcasts and two kinds of messages in one form only.
  ASSERT_EQ(folder.samples().size(), 2U * (2 * 14 - 3));
  for (const auto& sample : folder.samples()) EXPECT_EQ(sample.at("wrong"), 0) << sample;
}

TEST(Harness, LeavesOutWhatTheContenderDoesNotOffer) {
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "512", "--collectives", "scan,all_reduce"}, alone()), 0);
  ASSERT_EQ(folder.samples().size(), 2U);
  for (const auto& sample : folder.samples()) EXPECT_EQ(sample.at("collective"), "all_reduce") << sample;
}

TEST(Harness, WaitsForCoresThatAreNearAsLongAsThereIsPatience) {
  const Folder folder;
  const std::vector<std::string> cells{"--max-bytes", "512", "--collectives", "all_reduce"};
  auto never = cells, always = cells;
  never.insert(never.end(), {"--near", "0.001", "--quiet-patience", "0.3"});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_alone(folder, never, alone()), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  always.insert(always.end(), {"--near", "1000000000", "--quiet-patience", "0"});
  ASSERT_EQ(run_alone(folder, always, alone()), 0);
  ASSERT_EQ(folder.samples().size(), 4U);  // samples are written even if the cores were never near one another
  for (const auto& sample : folder.samples()) EXPECT_GT(sample.at("barrier_ns"), 0) << sample;
}

TEST(Harness, SaysHowMuchOfTheCoresTheHostTookAway) {
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "8", "--stolen", "100"}, alone()), 0);
  for (const auto& sample : folder.samples()) {
    EXPECT_GE(sample.at("stolen"), 0) << sample;
    EXPECT_LE(sample.at("stolen"), 1) << sample;
  }
}

TEST(NoiseFilter, MeasuresAgainWhatWasDisturbed) {
  on_threads(2, [](SyncFile& sync) {
    int calls = 0;
    CoreTicks ticks;
    // The hypervisor takes half of the cores' time (steal time) until the third call.
    NoiseFilter noise({.stolen = 0.05}, sync, [&] { return ticks; });
    const NoiseFilter::Observed found = noise.measure_quietly([&] {
      ticks = {ticks.all + 100, ticks.stolen + (++calls < 3 ? 50U : 5U)};
    });
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(found.stolen, 0.05);
  });
}

TEST(NoiseFilter, ReturnsTheLastMeasurementWhenTimeIsUp) {
  on_threads(2, [](SyncFile& sync) {
    int calls = 0;
    CoreTicks ticks;
    const auto steal_all = [&] {
      ++calls;
      ticks = {ticks.all + 100, ticks.stolen + 100};
    };
    NoiseFilter noise({.stolen = 0.05, .patience = std::chrono::seconds(0)}, sync, [&] { return ticks; });
    EXPECT_EQ(noise.measure_quietly(steal_all).stolen, 1);
    EXPECT_EQ(calls, 1);
  });
}

TEST(CoreTicks, AShareIsThatOfTheTimeInBetween) {
  EXPECT_EQ((CoreTicks{.all = 300, .stolen = 30}.stolen_since({.all = 100, .stolen = 20})), 0.05);
  EXPECT_EQ((CoreTicks{.all = 300, .stolen = 30}.stolen_since({.all = 300, .stolen = 30})), 0);
  EXPECT_GT(CoreTicks::now().all, 0U);
}

TEST(CoreTicks, OneTickDisturbsNobody) {
  const CoreTicks begin{.all = 100, .stolen = 20};
  EXPECT_FALSE((CoreTicks{.all = 110, .stolen = 21}.disturbed_since(begin, 0.05)));
  EXPECT_TRUE((CoreTicks{.all = 110, .stolen = 22}.disturbed_since(begin, 0.05)));
  EXPECT_FALSE((CoreTicks{.all = 1100, .stolen = 22}.disturbed_since(begin, 0.05)));
}

TEST(Harness, ModesAlternateAndUnsupportedModesAreSkipped) {
  struct TwoBackends final : Alone {
    explicit TwoBackends(std::string& turns) : turns_(turns) {}
    void select_backend(const std::string& backend) override { backend_ = backend; }
    void all_reduce(const float* in, float* out, std::size_t count) override {
      if (backend_ == "odd" && count == 2) throw std::runtime_error("not even");
      const char turn = backend_.empty() ? '.' : backend_.front();
      if (turns_.empty() || turns_.back() != turn) turns_ += turn;
      Alone::all_reduce(in, out, count);
    }
    std::string& turns_;
    std::string backend_;
  };
  const Folder folder;
  std::string turns;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "512", "--collectives", "all_reduce", "--backends", "odd,plain"},
                      [&](SyncFile&, const std::string&) { return std::make_unique<TwoBackends>(turns); }),
            0);
  // For each size, 8 bytes and then 512, each backend is called once to try it. Five turns measure all backends.
  EXPECT_EQ(turns, ".p.p.p.p.p.p.op.op.op.op.op.op");
  const auto samples = folder.samples();
  ASSERT_EQ(samples.size(), 6U);
  const std::vector<std::string> names{"alone", "alone:odd", "alone:plain"};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].at("contender"), names[i % names.size()]) << samples[i];
    EXPECT_EQ(samples[i].contains("microseconds"), i != 1) << samples[i];
  }
  EXPECT_EQ(samples[1].at("left_out"), "not even");
}

TEST(Harness, AnUnknownModeIsRefused) {
  const Folder folder;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_alone(folder, {"--max-bytes", "8", "--backends", "other"}, alone()), 2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("--backends other"), std::string::npos);
}

TEST(Harness, AWrongResultIsCounted) {
  struct Forgetful final : Alone {
    void all_reduce(const float*, float*, std::size_t) override {}
  };
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "512", "--collectives", "all_reduce"},
                      [](SyncFile&, const std::string&) { return std::make_unique<Forgetful>(); }),
            0);
  ASSERT_EQ(folder.samples().size(), 2U);
  EXPECT_EQ(folder.samples()[0].at("wrong"), 2);
  EXPECT_EQ(folder.samples()[1].at("wrong"), 128);
}

TEST(Harness, WhatTakesTooLongIsLeftOutAndSoIsWhatIsLarger) {
  struct Slow final : Alone {
    void all_reduce(const float* in, float* out, std::size_t count) override {
      if (count > 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      Alone::all_reduce(in, out, count);
    }
  };
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "8K", "--collectives", "all_reduce", "--patience", "0.5"},
                      [](SyncFile&, const std::string&) { return std::make_unique<Slow>(); }),
            0);
  const auto samples = folder.samples();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_TRUE(samples[0].contains("microseconds"));
  EXPECT_TRUE(samples[1].at("left_out").get<std::string>().starts_with("from 512 bytes up"));
}

TEST(Harness, WhatIsNotOfferedIsNotTimed) {
  struct OnlyBroadcast final : Alone {
    bool offers(Operation operation, bool) const override { return operation == Operation::broadcast; }
  };
  const Folder folder;
  ASSERT_EQ(run_alone(folder, {"--max-bytes", "8"},
                      [](SyncFile&, const std::string&) { return std::make_unique<OnlyBroadcast>(); }),
            0);
  ASSERT_EQ(folder.samples().size(), 1U);
  EXPECT_EQ(folder.samples()[0].at("collective"), "broadcast");
}

TEST(Harness, RotationTakesBuffersInTurn) {
  struct Watched final : Alone {
    explicit Watched(std::vector<const float*>& seen) : seen_(seen) {}
    ~Watched() override { seen_ = addresses; }
    std::vector<const float*>& seen_;
  };
  std::vector<const float*> seen;
  const auto make = [&](SyncFile&, const std::string&) { return std::make_unique<Watched>(seen); };
  const Folder folder;
  const std::vector<std::string> arguments{"--min-bytes", "4K", "--max-bytes", "4K", "--collectives", "all_reduce"};
  ASSERT_EQ(run_alone(folder, arguments, make), 0);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 1U);
  auto rotated = arguments;
  rotated.insert(rotated.end(), {"--rotate", "32K"});
  ASSERT_EQ(run_alone(folder, rotated, make), 0);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 8U);
}

TEST(Harness, BadArgumentsAreAnsweredInOneLine) {
  const Folder folder;
  for (const auto& [arguments, answer] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--collectives", "all_to_one"}, "known are all_reduce"},
           {{"--min-bytes", "lots"}, "not a number of bytes"},
           {{"--min-bytes", "8K", "--max-bytes", "8"}, "no sizes"},
           {{"--in-place", "maybe"}, "maybe"},
           {{"--stolen", "101"}, "--stolen"},
           {{"--stolen", "nan"}, "--stolen"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run_alone(folder, arguments, alone()), 2);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find(answer), std::string::npos);
  }
}

/// Runs a contender's program under collectives_run, over all collectives.
void expect_right_results(const std::string& program, const std::string& variant, const std::string& ranks) {
  const Folder folder;
  const auto outcome =
      run_command(std::string(kCollectivesRun) + " -n " + ranks + " " + program + " --variant " + variant +
                  " --oversubscribed --sync-file " + folder.sync_file() + " --output " + folder.output() +
                  " --contender smoke --role ours --max-bytes 128K --factor 128 --in-place both --back-to-back 8" +
                  " --seconds-per-cell 0.0001 --patience 60 --rotate 1M");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const auto samples = folder.samples();
  EXPECT_EQ(samples.size(), 3U * 7 + 1);  // 8 B, 1 KiB, 128 KiB
  for (const auto& sample : samples) EXPECT_EQ(sample.at("wrong"), 0) << sample;
}

TEST(OurContender, GoesByBackendsInTurns) {
  const Folder folder;
  const auto outcome = run_command(
      std::string(kCollectivesRun) + " -n 3 " + kCompareCollectives +
      " --variant ordinary --oversubscribed --sync-file " + folder.sync_file() + " --output " + folder.output() +
      " --contender ours --role ours --max-bytes 8K --factor 1024 --seconds-per-cell 0.0001 --patience 60" +
      " --backends ring,reduce_to_one,nonsense");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const auto samples = folder.samples();
  EXPECT_EQ(samples.size(), 2U * 4 * 4);  // two sizes; out of place, the one form of a broadcast among them
  for (const auto& sample : samples) {
    const bool known = sample.at("contender") != "ours:nonsense";
    EXPECT_EQ(sample.contains("wrong") && sample.at("wrong") == 0, known) << sample;
    EXPECT_EQ(sample.contains("left_out"), !known) << sample;
  }
}

TEST(OurContender, HasRightResults) {
  expect_right_results(kCompareCollectives, "ordinary", "2");
  expect_right_results(kCompareCollectives, "ordinary", "3");
}

#ifdef COMPARE_WITH_ROOFLINE
TEST(Roofline, HasRightResults) {
  for (const std::string kind : {"plain", "stream", "lines"}) {
    expect_right_results(kCompareRoofline, kind, "2");
    expect_right_results(kCompareRoofline, kind, "3");
  }
}
#endif

}  // namespace
}  // namespace collectives::compare
