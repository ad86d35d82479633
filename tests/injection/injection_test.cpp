// Tests of injected faults with ranks that are threads: delays, refused faults, faults that never happen, and the
// communicators that a text concerns. injection_processes_test stops and ends processes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Returns the duration of a barrier.
Clock::duration time_of_barrier(Communicator& comm) {
  const auto begun = Clock::now();
  comm.barrier();
  return Clock::now() - begun;
}

TEST(Injection, DelaysARankBeforeItSendsAnything) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}})
    run_hosts(hosts,
              [](Communicator& comm) {
                comm.barrier();
                EXPECT_GE(time_of_barrier(comm), 190ms) << "rank " << comm.rank();
              },
              {.inject = "delay rank=1 call=2 ms=200"});
}

TEST(Injection, DelaysARankAfterItHasSentItsData) {
  std::array<Clock::duration, 2> durations{};
  run_communicators(2,
                    [&](Communicator& comm) {
                      comm.barrier();
                      durations[static_cast<std::size_t>(comm.rank())] = time_of_barrier(comm);
                    },
                    {.inject = "delay rank=1 call=2 ms=1000 phase=sent"});
  EXPECT_GE(durations[1], 990ms);
  EXPECT_LT(durations[0], durations[1]) << "rank 0 needs only the data of rank 1";
}

TEST(Injection, DelaysARankThatWaitsAndOneThatHasItsResult) {
  run_communicators(
      2,
      [&](Communicator& comm) {
        EXPECT_GE(time_of_barrier(comm), 190ms);  // rank 1 is late, and rank 0 is delayed while it waits
        const auto took = time_of_barrier(comm);
        if (comm.rank() == 1) EXPECT_GE(took, 90ms);
        std::vector<float> data(1000, 1);
        comm.all_reduce_async(data, data).wait();
        EXPECT_EQ(data, std::vector<float>(1000, 2));
      },
      {.inject =
           "delay rank=1 call=1 ms=200; delay rank=0 call=1 ms=10 phase=wait; delay rank=1 call=2 ms=100 phase=end"});
}

TEST(Injection, ADelayedRankIsNamedByATimeout) {
  run_communicators(2,
                    [](Communicator& comm) {
                      const Error error = error_of([&] { comm.barrier(); });
                      EXPECT_EQ(error.code(), Errc::timeout);
                      EXPECT_SAYS(error.what(), "barrier #1: timed out after");
                      EXPECT_SAYS(error.what(), "rank 1 has not arrived");
                    },
                    {.timeout = 200ms, .inject = "delay rank=1 call=1 ms=600"});
}

/// Expects that the construction of a communicator fails on each rank, with a text that contains `why`.
void expect_refused(const std::vector<int>& hosts, const std::string& inject, const std::string& why) {
  std::atomic<int> refused = 0;
  try {
    run_hosts(hosts, [](Communicator&) { ADD_FAILURE() << "constructed"; }, {.inject = inject});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument) << inject;
    EXPECT_SAYS(error.what(), why);
    ++refused;
  }
  EXPECT_EQ(refused, 1) << inject;
}

TEST(Injection, RefusesWhatHasNoMeaning) {
  const std::vector<int> one_host{0, 0, 0}, hosts{0, 0, 1};
  expect_refused(one_host, "kill rank=1 call=1", "the ranks of this host are threads of one process");
  expect_refused(one_host, "stop rank=2 call=0", "the ranks of this host are threads of one process");
  expect_refused(one_host, "kill rank=3 call=1", "there is no rank 3: the communicator has ranks 0 to 2");
  expect_refused(one_host, "disconnect rank=1 call=1", "all ranks share memory");
  expect_refused(one_host, "cut from=0 to=1 call=1", "all ranks share memory");
  expect_refused(hosts, "drop from=0 to=1 call=1", "ranks 0 and 1 share memory");
  expect_refused(hosts, "drop from=0 to=2 call=1",
                 "wire queue sends no datagrams to rank 2, and a stream loses nothing");
  expect_refused(hosts, "cut from=2 to=0 call=1", "wire queue cannot cut a connection");
  expect_refused(hosts, "disconnect rank=2 call=1", "wire queue cannot cut its connections");
  expect_refused(
      hosts, "delay rank=0 call=1 ms=2; kil rank=1 call=1",
      "CommunicatorOptions::inject=\"delay rank=0 call=1 ms=2; kil rank=1 call=1\": at character 27: unknown");
}

TEST(Injection, WarnsOfAFaultThatNeverHappens) {
  ::testing::internal::CaptureStderr();
  run_communicators(2, [](Communicator& comm) { comm.barrier(); }, {.inject = "delay rank=1 call=1000 ms=5"});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_SAYS(log,
              "warning: rank 1: injected fault \"delay rank=1 call=1000 ms=5 phase=begin\" has not happened: the "
              "communicator ended after its call #1");
}

TEST(Injection, LogsAFaultOnce) {
  ::testing::internal::CaptureStderr();
  run_communicators(2,
                    [](Communicator& comm) {
                      for (int call = 0; call < 3; ++call) comm.barrier();
                    },
                    {.inject = "delay rank=1 call=2 ms=1"});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "collectives: warning: rank 1: injected: delay rank=1 call=2 ms=1 phase=begin\n");
}

/// Sets COLLECTIVES_INJECT while it exists.
struct Variable {
  explicit Variable(const char* text) { ::setenv("COLLECTIVES_INJECT", text, 1); }
  ~Variable() { ::unsetenv("COLLECTIVES_INJECT"); }
};

TEST(Injection, OfTheVariableConcernsNoCommunicatorOfSplit) {
  const Variable variable("delay rank=0 call=3 ms=150");
  ::testing::internal::CaptureStderr();
  run_communicators(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0);  // takes several calls of comm, #3 among them
    for (int call = 0; call < 5; ++call) part->barrier();
    const Communicator without(std::move(*comm.split(0, 0, {.inject = "none"})));
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_SAYS(log, "injected: delay rank=0 call=3");
  EXPECT_EQ(log.find("injected"), log.rfind("injected")) << log;
}

TEST(Injection, OfOptionsConcernsACommunicatorOfSplit) {
  run_communicators(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, -comm.rank(), {.inject = "delay rank=0 call=2 ms=150"});
    part->barrier();
    EXPECT_GE(time_of_barrier(*part), 140ms);
  });
}

TEST(Injection, OfOptionsReplacesThatOfTheVariable) {
  const Variable variable("kill rank=0 call=1; nonsense");
  run_communicators(2, [](Communicator& comm) { comm.barrier(); }, {.inject = "none"});
  const Error error = error_of([] { run_communicators(2, [](Communicator&) {}); });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_SAYS(error.what(), "COLLECTIVES_INJECT=\"kill rank=0 call=1; nonsense\": at character 21: unknown fault");
}

}  // namespace
}  // namespace collectives::testing
