// Tests of the counters of calls, bytes and times, read by the program itself and by `collectives_info watch` from
// another process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/programs.hpp"
#include "support/ranks.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesInfo[];

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

TEST(CountersTest, CountCallsAndBytesByCollective) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<float> data(1000), all(3000);
    for (int call = 0; call < 5; ++call) comm.all_reduce(data);
    comm.all_gather(data, all);
    comm.all_reduce_async(data, data).wait();
    comm.barrier();
    const Counters counters = comm.counters();
    EXPECT_EQ(counters[Collective::all_reduce].calls, 6u);
    EXPECT_EQ(counters[Collective::all_reduce].bytes, 24'000u);
    EXPECT_EQ(counters[Collective::all_gather].bytes, 12'000u);
    EXPECT_EQ(counters[Collective::barrier].calls, 1u);
    EXPECT_EQ(counters[Collective::broadcast].calls, 0u);
    EXPECT_EQ(counters.total().calls, 8u);
    EXPECT_EQ(counters.total().bytes, 36'000u);
  });
}

TEST(CountersTest, TimeCallsThatAreOverAtOnceBySamples) {
  run_communicators(1, [](Communicator& comm) {
    const auto begun = std::chrono::steady_clock::now();
    for (int call = 0; call < 100'000; ++call) comm.barrier();
    const auto took = std::chrono::steady_clock::now() - begun;
    const auto counted = comm.counters()[Collective::barrier];
    EXPECT_EQ(counted.calls, 100'000u);
    EXPECT_GT(counted.time, 0ns);
    EXPECT_LT(counted.time, 100 * took);  // a loose bound, because a timed call may have been interrupted
    EXPECT_EQ(counted.waiting, 0ns);
  });
}

TEST(CountersTest, SayHowLongALateRankWasWaitedFor) {
  std::atomic<bool> waits{false};
  run_communicators(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!waits) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(300ms);
    }
    waits = true;
    comm.barrier();
    const auto counted = comm.counters()[Collective::barrier];
    EXPECT_GE(counted.time, 0ns);
    if (comm.rank() == 0) {
      EXPECT_GT(counted.waiting, 10ms);
      EXPECT_GT(counted.time, 10ms);
    }
  });
}

Outcome watch(const std::string& arguments, const std::function<void(const std::string&)>& heard = {}) {
  return run_command(std::string(kCollectivesInfo) + " watch " + arguments, heard);
}

TEST(WatchTest, ShowsCountersAndWhatHangs) {
  std::atomic<bool> seen{false};
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data(1 << 20);
    comm.barrier();
    comm.all_reduce(data);
    if (comm.rank() == 1)
      while (!seen) std::this_thread::sleep_for(1ms);
    Work hanging = comm.all_reduce_async(data, data, ReduceOp::sum, {.name = "fc1"}), behind = comm.barrier_async();
    if (comm.rank() == 0) {
      while (comm.recent_operations()[2].waited_for != 1) hanging.wait_for(1ms);
      const Outcome once = watch("--once --pid " + std::to_string(::getpid()));
      EXPECT_EQ(once.status, 0) << once.out;
      EXPECT_EQ(occurrences(once.out, "communicator [0-9]+: rank [01] of 2, 1 host, local, backend"), 2) << once.out;
      EXPECT_EQ(occurrences(once.out, "\n  all_reduce +1 +4 MiB "), 2) << once.out;
      EXPECT_EQ(occurrences(once.out,
                            "\n  #3 all_reduce 1048576 x f32 sum .fc1., .*: not finished, waits for rank 1, "
                            "started .* ago; 1 more behind it\n"),
                1)
          << once.out;
      const auto read = parse_json(watch("--json --pid " + std::to_string(::getpid())).out);
      const auto& process = read.at(0);
      EXPECT_EQ(process.at("process"), ::getpid());
      ASSERT_EQ(process.at("communicators").size(), 2u);
      for (const auto& one : process.at("communicators")) {
        EXPECT_EQ(one.at("size"), 2);
        EXPECT_EQ(one.at("transport"), "local");
        const auto& reduced = one.at("collectives").at("all_reduce");
        EXPECT_EQ(reduced.at("bytes").get<std::size_t>() / reduced.at("calls").get<std::size_t>(), 4u << 20);
        if (one.at("rank") != 0) continue;
        EXPECT_EQ(one.at("issued"), 4);
        EXPECT_EQ(one.at("started"), 3);
        const auto& last = one.at("last_operation");
        EXPECT_EQ(last.at("sequence"), 3);
        EXPECT_EQ(last.at("collective"), "all_reduce");
        EXPECT_EQ(last.at("count"), 1 << 20);
        EXPECT_EQ(last.at("tensor"), "fc1");
        EXPECT_EQ(last.at("state"), "started");
        EXPECT_EQ(last.at("waits_for"), 1);
        EXPECT_GT(last.at("started_seconds_ago"), 0);
      }
      const Outcome all = watch("--once");
      EXPECT_GE(occurrences(all.out, "process " + std::to_string(::getpid()) + " .*: rank [01] of 2"), 2) << all.out;
      seen = true;
    }
    hanging.wait();
    behind.wait();
  });
}

TEST(WatchTest, RunsUntilTheProcessEnds) {
  Child child([](Line& line) {
    Communicator comm(*bootstrap_threads(1)[0]);
    comm.barrier();
    line.put(1);
    line.take();
    return 0;
  });
  child.line().take();
  const std::string question = "--interval 20ms --pid " + std::to_string(child.pid());
  bool ended = false;
  const Outcome outcome = watch(question, [&](const std::string& heard) {
    if (ended || heard.find("#1 barrier") == std::string::npos) return;
    child.line().put(1);
    child.wait();
    ended = true;
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_GE(occurrences(outcome.out, "last operation\n +[0-9]+ .* 0 of 1 .*#1 barrier"), 1) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "process [0-9]+ has ended\n"), 1) << outcome.out;
}

TEST(WatchTest, SeesAChildThatMadeItsOwnAndNotWhatItInherited) {
  run_communicators(1, [](Communicator& comm) {
    comm.barrier();
    Child idle([](Line& line) {
      line.put(1);
      line.take();
      return 0;
    });
    Child busy([](Line& line) {
      Communicator own(*bootstrap_threads(1)[0]);
      std::vector<float> data(3);
      own.all_reduce(data);
      line.put(1);
      line.take();
      return 0;
    });
    idle.line().take();
    busy.line().take();
    const Outcome of_idle = watch("--once --pid " + std::to_string(idle.pid()));
    EXPECT_NE(of_idle.status, 0);
    EXPECT_EQ(of_idle.out,
              "collectives_info: process " + std::to_string(idle.pid()) + " has no communicator to watch\n");
    const Outcome of_busy = watch("--once --pid " + std::to_string(busy.pid()));
    EXPECT_EQ(occurrences(of_busy.out, "communicator "), 1) << of_busy.out;
    EXPECT_EQ(occurrences(of_busy.out, "#1 all_reduce"), 1) << of_busy.out;
    idle.line().put(1);
    busy.line().put(1);
    EXPECT_EQ(idle.wait(), 0);
    EXPECT_EQ(busy.wait(), 0);
    EXPECT_EQ(comm.counters().total().calls, 1u);
  });
}

TEST(WatchTest, AnswersBadQuestionsInOneLine) {
  for (const char* arguments :
       {"--pid 0", "--pid nobody", "--interval never", "--twice", "--once --pid 999999999", "--json --pid 999999999"}) {
    const Outcome outcome = watch(arguments);
    EXPECT_NE(outcome.status, 0) << arguments;
    EXPECT_TRUE(outcome.out.starts_with("collectives_info: ")) << outcome.out;
    EXPECT_EQ(occurrences(outcome.out, "\n"), 1) << outcome.out;
  }
}

}  // namespace
}  // namespace collectives::testing
