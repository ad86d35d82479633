// Tests of waits: a waiting rank yields its core for a bounded time, and then sleeps. This file replaces sched_yield()
// and nanosleep() by functions that count their calls. A late yield is one that takes over 2 ms, because another
// program had the core. Waits then sleep at once for up to 20 ms.
#include "base/wait.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/bounded_yield.hpp"
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void compute_for(Clock::duration time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
  }
}

/// Number of calls that this thread has made since the last reset(), and its longest sleep.
struct Calls {
  int yields = 0, sleeps = 0;
  std::chrono::nanoseconds longest_sleep{};
};
thread_local Calls calls;
void reset() { calls = {}; }

thread_local Clock::duration yields_take{};  // minimum duration of a yield, by which tests make yields slow

}  // namespace

extern "C" {
int sched_yield() noexcept {
  ++calls.yields;
  compute_for(yields_take);
  return static_cast<int>(::syscall(SYS_sched_yield));
}
int nanosleep(const timespec* time, timespec* rest) {
  ++calls.sleeps;
  calls.longest_sleep = std::max<std::chrono::nanoseconds>(
      calls.longest_sleep, std::chrono::seconds(time->tv_sec) + std::chrono::nanoseconds(time->tv_nsec));
  return static_cast<int>(::syscall(SYS_nanosleep, time, rest));
}
}

namespace collectives::testing {
namespace {

template <class Pause>
void pause_for(Clock::duration time, Pause&& pause) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) pause();
}

/// Calls `pause` 20 times. Expects that each call sleeps once, for at most `longest`, and that none yields.
template <class Pause>
void expect_sleeps(std::chrono::nanoseconds longest, Pause&& pause) {
  reset();
  for (int i = 0; i < 20; ++i) pause();
  EXPECT_EQ(calls.yields, 0);
  EXPECT_EQ(calls.sleeps, 20);
  EXPECT_LE(calls.longest_sleep, longest);
}

/// Returns whether one of 20 new waits calls sched_yield(). One is enough, because a busy machine may prevent yields.
template <class NewWait>
bool yields_at_first(NewWait&& new_wait) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(30ms);  // a slow yield prevents further yields for 20 ms
    reset();
    new_wait();
    if (calls.yields > 0) return true;
  }
  return false;
}

/// Makes yields of this process take over two milliseconds.
void yield_late(int times) {
  yields_take = 4ms;
  reset();
  while (calls.yields < times) Backoff().wait();  // pauses that sleep because of an earlier late yield do not count
  yields_take = {};
}

constexpr auto kAnyBound = 20ms;  // time after which no wait yields any more, with or without a core for each rank

TEST(CollectiveBackoff, SleepsAfterABoundedTimeIfRanksOutnumberCores) {
  CollectiveBackoff backoff(true);
  pause_for(kAnyBound, [&] { backoff.wait(); });
  expect_sleeps(1ms, [&] { backoff.wait(); });
}

TEST(CollectiveBackoff, SleepsAfterABoundedTimeIfEachRankHasACore) {
  CollectiveBackoff backoff(false);
  pause_for(kAnyBound, [&] { backoff.wait(); });
  expect_sleeps(1ms, [&] { backoff.wait(); });
}

TEST(CollectiveBackoff, SleepsAndCallsTheHookAfterABoundedTimeIfThereIsAHook) {
  static std::atomic<int> hooked;
  set_wait_hook([]() noexcept { ++hooked; });
  for (const bool oversubscribed : {false, true}) {
    CollectiveBackoff backoff(oversubscribed);
    pause_for(kAnyBound, [&] { backoff.wait(); });
    hooked = 0;
    expect_sleeps(50us, [&] { backoff.wait(); });
    EXPECT_EQ(hooked, 20);
  }
  set_wait_hook(nullptr);
}

TEST(CollectiveBackoff, YieldsAgainAfterProgress) {
  CollectiveBackoff backoff(true);
  pause_for(kAnyBound, [&] { backoff.wait(); });
  EXPECT_TRUE(yields_at_first([&] {
    backoff.reset();
    for (int i = 0; i < 20; ++i) backoff.wait();
  }));
}

TEST(Backoff, SleepsAfterABoundedTime) {
  Backoff backoff;
  pause_for(kAnyBound, [&] { backoff.wait(); });
  expect_sleeps(1ms, [&] { backoff.wait(); });
}

TEST(Backoff, YieldsAgainAfterProgress) {
  Backoff backoff;
  pause_for(kAnyBound, [&] { backoff.wait(); });
  EXPECT_TRUE(yields_at_first([&] {
    backoff.reset();
    backoff.wait();
  }));
}

TEST(Backoff, SleepsForAtMostTheGivenTime) {
  Backoff backoff(50us);
  pause_for(kAnyBound, [&] { backoff.wait(); });
  expect_sleeps(50us, [&] { backoff.wait(); });
}

TEST(BoundedYield, YieldsUntilItsBoundAndThenSleeps) {
  BoundedYield pause(5ms);
  reset();
  pause.wait();
  EXPECT_EQ(calls.yields, 1);
  EXPECT_FALSE(pause.sleeps());
  pause_for(kAnyBound, [&] { pause.wait(); });
  EXPECT_TRUE(pause.sleeps());
  expect_sleeps(50us, [&] { pause.wait(); });
}

TEST(LateYield, MakesWaitsSleepAtOnceIfItTookOverTwoMilliseconds) {
  EXPECT_TRUE(yields_at_first([] { Backoff().wait(); }));
  yield_late(4);  // waits now sleep at once for 20 ms
  reset();
  Backoff().wait();
  CollectiveBackoff(true).wait();
  EXPECT_EQ(calls.yields, 0);
  EXPECT_EQ(calls.sleeps, 2);
  EXPECT_TRUE(yields_at_first([] { Backoff().wait(); }));
}

TEST(LateYield, MakesWaitsSleepForAFewMillisecondsIfItIsAlone) {
  const auto yields_soon_after_one_late_yield = [] {
    std::this_thread::sleep_for(100ms);  // earlier late yields have no effect
    yield_late(1);
    std::this_thread::sleep_for(4ms);
    reset();
    Backoff().wait();
    return calls.yields > 0;
  };
  bool yields = false;
  for (int i = 0; i < 20 && !yields; ++i) yields = yields_soon_after_one_late_yield();  // a busy machine may prevent it
  EXPECT_TRUE(yields);
}

// ---- Work::test()

/// Calls `poll(work)` on rank 0 of two ranks. `work` is an operation that rank 1 enters only after poll() has returned.
template <class Poll>
void poll_pending_work(const char* cores, Poll&& poll) {
  ::setenv("COLLECTIVES_CORES", cores, 1);
  std::atomic<bool> polled = false;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data(1000, 1.f);
    if (comm.rank() == 0) {
      Work work = comm.all_reduce_async(data, data);
      poll(work);
      polled = true;
      work.wait();
    } else {
      while (!polled) std::this_thread::sleep_for(1ms);
      comm.all_reduce(data);
    }
    EXPECT_EQ(data, std::vector<float>(1000, 2.f));
  });
  ::unsetenv("COLLECTIVES_CORES");
}

TEST(Test, NeverSleepsIfEachRankHasACore) {
  poll_pending_work("64", [](Work& work) {
    for (int i = 0; i < 10; ++i) work.test();
    reset();
    for (int i = 0; i < 20'000; ++i) EXPECT_FALSE(work.test());
    EXPECT_EQ(calls.sleeps, 0);
    EXPECT_EQ(calls.yields, 0);
  });
}

TEST(Test, SleepsAfterManyFruitlessCallsIfRanksOutnumberCores) {
  for (const bool yields : {false, true})
    poll_pending_work("1", [&](Work& work) {
      reset();
      for (int i = 0; i < 30; ++i) EXPECT_FALSE(work.test());
      EXPECT_EQ(calls.sleeps, 0);
      // A row of calls that takes much CPU time counts as computing. On a virtual machine, that time includes the time
      // for which the hypervisor withdraws the core. A row lasts several seconds if each yield takes a time slice.
      const auto end = std::chrono::steady_clock::now() + 100s;
      while (calls.sleeps <= 20 && std::chrono::steady_clock::now() < end)
        for (int i = 0; i < 2000; ++i) {
          EXPECT_FALSE(work.test());
          if (yields) std::this_thread::yield();
        }
      EXPECT_GT(calls.sleeps, 20);
      EXPECT_LE(calls.longest_sleep, 50us);
    });
}

TEST(Test, DoesNotSleepIfTheProgramComputesBetweenTheCalls) {
  poll_pending_work("1", [](Work& work) {
    reset();
    for (int i = 0; i < 2000; ++i) {
      EXPECT_FALSE(work.test());
      compute_for(20us);
    }
    EXPECT_EQ(calls.sleeps, 0);
  });
}

TEST(Test, StopsSleepingIfTheProgramBeginsToCompute) {
  poll_pending_work("1", [](Work& work) {
    for (int i = 0; i < 2000; ++i) EXPECT_FALSE(work.test());
    reset();
    for (int i = 0; i < 200; ++i) {
      compute_for(200us);
      EXPECT_FALSE(work.test());
    }
    EXPECT_LE(calls.sleeps, 1);
  });
}

}  // namespace
}  // namespace collectives::testing
