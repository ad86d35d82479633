// Tests of COLLECTIVES_TRACE and COLLECTIVES_LOG, with ranks that are processes. The tests read the trace file as JSON
// after the program has ended, and the lines of the log on stderr.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/programs.hpp"
#include "support/system.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kRankProgram[], kTracedProgram[];

namespace collectives::testing {
namespace {

using nlohmann::json;

/// A directory of this test, which the destructor removes.
class Trace : public ::testing::Test {
 protected:
  Trace() {
    std::string name = (std::filesystem::temp_directory_path() / "trace_test.XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~Trace() override { std::filesystem::remove_all(directory_); }

  std::string file() const { return directory_ / "trace.json"; }
  Outcome run(int ranks, const std::string& program, const std::string& variables = "") const {
    return run_command("env COLLECTIVES_TRACE=" + file() + " " + variables + " " + kCollectivesRun + " -n " +
                       std::to_string(ranks) + " --grace 4s " + program);
  }
  Outcome run_on_hosts(int ranks, const std::string& program) const {
    return run(ranks, "sh -c 'COLLECTIVES_HOST_ID=$RANK exec \"$0\" \"$@\"' " + program);
  }

  /// Returns the events of `files` in their order. Accepts files without an end, as viewers of traces do.
  static std::vector<json> events(const std::vector<std::string>& files) {
    std::ostringstream text;
    for (const std::string& name : files) text << std::ifstream(name).rdbuf();
    const json all = parse_json(text.str() + "]");
    EXPECT_TRUE(all.is_array()) << text.str().substr(0, 2000);
    return all.is_array() ? all.get<std::vector<json>>() : std::vector<json>{};
  }
  static std::vector<json> of_category(const std::vector<json>& events, const std::string& category) {
    std::vector<json> found;
    std::ranges::copy_if(events, std::back_inserter(found),
                         [&](const json& event) { return event.value("cat", "") == category; });
    return found;
  }
  static double begin(const json& event) { return event.at("ts").get<double>(); }
  static double end(const json& event) { return begin(event) + event.at("dur").get<double>(); }

  /// Expects that the times of all ranks are on one clock, up to `error` us. No rank may leave an all-reduce before all
  /// ranks have entered it.
  static void expect_one_clock(const std::vector<json>& operations, double error) {
    struct Span {
      double last_begin = 0, first_end = std::numeric_limits<double>::max();
    };
    std::map<std::uint64_t, Span> calls;
    for (const json& event : operations)
      if (event.at("args").at("collective") == "all_reduce" && event.at("tid").get<int>() == 2) {
        Span& span = calls[event.at("args").at("sequence").get<std::uint64_t>()];
        span.last_begin = std::max(span.last_begin, begin(event));
        span.first_end = std::min(span.first_end, end(event));
      }
    EXPECT_GT(calls.size(), 2u);
    for (const auto& [sequence, span] : calls) EXPECT_LE(span.last_begin, span.first_end + error) << sequence;
  }

  std::filesystem::path directory_;
};

TEST_F(Trace, IsOneFileForAllRanksOfAHost) {
  const Outcome outcome = run(3, kTracedProgram);
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const auto all = events({file()});
  const auto operations = of_category(all, "operation");
  std::map<int, std::vector<json>> by_rank;
  for (const json& event : operations) by_rank[event.at("pid").get<int>()].push_back(event);
  ASSERT_EQ(by_rank.size(), 3u);
  for (const auto& [rank, mine] : by_rank) {
    EXPECT_GT(mine.size(), 1006u);  // 1006 calls, and the operations of split()
    const auto named = std::ranges::find_if(mine, [](const json& e) { return e.at("args").at("tensor") == "fc1"; });
    ASSERT_NE(named, mine.end());
    const json& args = named->at("args");
    EXPECT_EQ(named->at("name"), "all_reduce fc1");
    EXPECT_EQ(args.at("count"), 20'000);
    EXPECT_EQ(args.at("bytes"), 80'000);
    EXPECT_EQ(args.at("type"), "f32");
    EXPECT_EQ(args.at("op"), "sum");
    EXPECT_EQ(args.at("sequence"), 1006);
    EXPECT_EQ(args.at("state"), "finished");
    EXPECT_TRUE(args.at("plan").get<std::string>().starts_with("hierarchical/")) << args;
    EXPECT_EQ(
        std::ranges::count_if(mine, [](const json& e) { return e.at("args").at("tensor") == "a \"name\"\\ ? ?"; }), 1);
  }
  expect_one_clock(operations, 5);
}

TEST_F(Trace, ShowsPhasesInsideOperationsAndWhatTheProgramDoes) {
  const Outcome outcome = run(2, kTracedProgram);
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const auto all = events({file()});
  std::map<std::tuple<int, int, std::uint64_t>, json> operations;  // key: rank, track and number
  for (const json& event : of_category(all, "operation"))
    operations[{event.at("pid"), event.at("tid"), event.at("args").at("sequence")}] = event;
  std::set<std::string> phases;
  for (const json& phase : of_category(all, "phase")) {
    phases.insert(phase.at("name"));
    const auto found = operations.find({phase.at("pid"), phase.at("tid"), phase.at("args").at("sequence")});
    ASSERT_NE(found, operations.end()) << phase;
    EXPECT_GE(begin(phase), begin(found->second));
    EXPECT_LE(end(phase), end(found->second) + 0.002);  // 0.002 us allow for rounding
  }
  EXPECT_TRUE(phases.contains("intra-host collective"));
  EXPECT_TRUE(phases.contains("messages"));  // the phase of the ring algorithm
  EXPECT_TRUE(phases.contains("top-k"));
  std::set<std::string> program;
  for (const json& event : of_category(all, "program"))
    program.insert(event.at("name").get<std::string>().substr(0, 6));
  EXPECT_TRUE(program.contains("choose"));
}

TEST_F(Trace, IsOneFileForEachOfSeveralHosts) {
  const Outcome outcome = run_on_hosts(2, kTracedProgram);
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const auto all = events({file(), file() + ".host1"});
  std::set<int> ranks;
  std::set<std::string> phases;
  for (const json& event : of_category(all, "operation")) ranks.insert(event.at("pid").get<int>());
  for (const json& event : of_category(all, "phase")) phases.insert(event.at("name"));
  EXPECT_EQ(ranks, (std::set{0, 1}));
  EXPECT_TRUE(phases.contains("between hosts"));
  EXPECT_TRUE(phases.contains("coding"));
  // The ranks have one clock, so the true offset is 0. The measured offset is wrong by at most the time of one message.
  expect_one_clock(of_category(all, "operation"), 100'000);
}

TEST_F(Trace, IsReadableWhenARankWasKilled) {
  const Outcome outcome = run(3, std::string(kRankProgram) + " die 1 9");
  EXPECT_NE(outcome.status, 0);
  const auto operations = of_category(events({file()}), "operation");
  EXPECT_EQ(std::ranges::count_if(operations, [](const json& e) { return e.at("args").at("state") == "failed"; }), 2);
  EXPECT_GT(operations.size(), 20u);
}

TEST_F(Trace, ReplacesThatOfAnEarlierRun) {
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(run(2, std::string(kRankProgram) + " reduce 8").status, 0);
    EXPECT_EQ(of_category(events({file()}), "operation").size(), 6u);
  }
}

TEST_F(Trace, EndsWithAWholeEventIfAWriteFails) {
  ::setenv("COLLECTIVES_TRACE", file().c_str(), 1);
  Child child([](Line&) {
    const StderrCapture stderr_capture;
    {
      Communicator comm(*bootstrap_threads(1)[0]);
      std::signal(SIGXFSZ, SIG_IGN);
      set_limit(RLIMIT_FSIZE, 30'000);
      for (int call = 0; call < 5000; ++call) comm.barrier();
    }
    return occurrences(stderr_capture.text(), "COLLECTIVES_TRACE: .*: File too large: the trace ends here\n") == 1 ? 0
                                                                                                                   : 1;
  });
  ::unsetenv("COLLECTIVES_TRACE");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_GT(of_category(events({file()}), "operation").size(), 20u);
}

TEST_F(Trace, EndsAtItsMaximumLength) {
  const Outcome outcome = run(2, kTracedProgram, "COLLECTIVES_TRACE_BYTES=64K");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "it is as long as COLLECTIVES_TRACE_BYTES allows: the trace ends here"), 2)
      << outcome.out;
  const auto bytes = std::filesystem::file_size(file());
  EXPECT_GE(bytes, 64u << 10);
  EXPECT_LE(bytes, (64u << 10) * 3);  // each rank may write once more when the limit is reached
  EXPECT_GT(of_category(events({file()}), "operation").size(), 20u);
}

TEST_F(Trace, FailsOnEveryRankIfItCannotBeWritten) {
  const Outcome outcome = run(2, std::string(kRankProgram) + " reduce 8", "COLLECTIVES_TRACE=/nowhere/trace.json");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "rank 0: COLLECTIVES_TRACE: opening /nowhere/trace.json: No such file"), 2)
      << outcome.out;
}

TEST_F(Trace, IsWrittenByEachRankToThePathOfItsOwnEnvironment) {
  for (const std::string hosts : {"", "COLLECTIVES_HOST_ID=$RANK "}) {
    // Rank 0 has no trace, rank 1 has one of its own, ranks 2 and 3 share one.
    const std::string script = "[ $RANK -eq 0 ] || export COLLECTIVES_TRACE=" + (directory_ / "trace").string() +
                               "$(($RANK / 2)); " + hosts + "exec \"$0\" \"$@\"";
    const Outcome outcome = run_command(std::string(kCollectivesRun) + " -n 4 --grace 4s sh -c '" + script + "' " +
                                        kRankProgram + " reduce 8");
    ASSERT_EQ(outcome.status, 0) << outcome.out;
    const auto ranks_in = [&](const std::string& name) {
      std::set<int> ranks;
      for (const json& event : of_category(events({(directory_ / name).string()}), "operation"))
        ranks.insert(event.at("pid").get<int>());
      return ranks;
    };
    if (hosts.empty()) {
      EXPECT_EQ(ranks_in("trace0"), (std::set<int>{1}));
      EXPECT_EQ(ranks_in("trace1"), (std::set<int>{2, 3}));
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
    } else {
      for (const char* name : {"trace0.host1", "trace1.host2", "trace1.host3"})
        EXPECT_TRUE(std::filesystem::exists(directory_ / name)) << name;
    }
  }
}

TEST_F(Trace, FollowsNoPlantedLink) {
  std::ofstream(directory_ / "victim") << "secret";
  std::filesystem::create_symlink(directory_ / "victim", file());
  const Outcome outcome = run(2, std::string(kRankProgram) + " reduce 8");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "COLLECTIVES_TRACE: opening .*symbolic link"), 2) << outcome.out;
  EXPECT_EQ(std::filesystem::file_size(directory_ / "victim"), 6u);
}

TEST(Log, SaysOnceWhatACommunicatorIs) {
  const Outcome outcome =
      run_command(std::string("COLLECTIVES_LOG=info ") + kCollectivesRun + " -n 3 " + kRankProgram + " reduce 8");
  EXPECT_EQ(occurrences(outcome.out,
                        "collectives: info: rank 0: communicator 1: 3 ranks, shared_memory, backend auto, deadline "
                        "[0-9]+ s, tuning built-in.*, progress thread (on|off)\n"),
            1)
      << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "communicator 1: "), 1) << outcome.out;
}

TEST(Log, SaysOfEveryOperationHowItWent) {
  const Outcome outcome =
      run_command(std::string("COLLECTIVES_LOG=debug ") + kCollectivesRun + " -n 2 " + kRankProgram + " reduce 8");
  EXPECT_EQ(occurrences(outcome.out, "collectives: debug: rank [01]: #2 all_reduce 2 x f32 sum, ring: took [0-9.]+ "),
            2)
      << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "collectives: debug: rank [01]: #[123] all_reduce"), 6) << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
