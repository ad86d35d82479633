// Implementation of the waits of the library, in which a rank waits for other ranks. A wait is a loop that tests a
// condition and calls wait() after each test. Each call of wait() is a turn. The first turns of a wait spin (return at
// once). Later turns yield the core to another thread. All further turns sleep (wait.hpp).
//
// A hook is a function of the program that each turn calls. A late yield is a yield that lasts more than 2 ms, because
// another program uses the core. After a late yield, waits skip the turns that yield, and sleep instead.
#include "base/wait.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>

namespace collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Time for which a wait spins if each rank has a core. After that time, the wait yields, because the awaited rank may
// need this core nevertheless.
constexpr auto kSpin = 5us;
// Time after which a wait sleeps instead of yielding, if each rank has a core. Before that time, yields are better:
// they hardly disturb other programs, whereas a sleep ends late.
constexpr auto kYield = 2ms;
// Time after which a wait sleeps if there are more ranks than cores. Most waits are shorter: 8 ranks on 2 cores
// complete an 8-byte all-reduce in 15 us. With a constant of 50 us, that all-reduce took a fifth longer.
constexpr auto kYieldIfOversubscribed = 200us;
// Maximum time from the beginning of a wait to its first sleep, if a message of another host may end the wait. Most
// messages arrive sooner, and a sleep ends late. The limit does not apply while a hook is installed.
constexpr auto kSpinForWire = 300us;
// Interval at which a wait lets its caller check deadlines, aborts and lost peers.
constexpr auto kLookEvery = 1ms;
constexpr auto kShortestSleep = 1us;  // minimum request to the kernel; Linux adds 50 us of timer slack
// Duration from which a yield counts as late. A busy program keeps the core for a time slice of 2.8 ms. A waiting rank
// keeps the core only for microseconds.
constexpr auto kLateYield = 2ms;
// Time for which waits sleep at once after a single late yield. A system service or the start of a process may have
// caused the late yield. The time is therefore as short as a time slice.
constexpr auto kSleepAtOnceAtFirst = 2500us;
// Maximum time for which waits sleep at once. Late yields that recur come from a busy program, and each doubles the
// time. 20 ms are long compared with a time slice.
constexpr auto kSleepAtOnceAtMost = 20ms;
// Maximum time from the end of sleeping at once to the next late yield, if that yield counts as recurring.
constexpr auto kLateYieldsRecurIn = 20ms;

// Number of fruitless tests in a row after which each further test sleeps, unless the program computes between its
// tests. A fruitless test is a Work::test() that found neither an end nor progress. 1,000 tests take 0.6 ms if the
// program yields for 0.6 us after each.
constexpr int kTests = 1000;
// Number of fruitless tests in a row while waits sleep at once, because each yield may then take a time slice.
constexpr int kTestsAfterLateYield = 32;
// Returns the maximum CPU time of a row of tests in a program that only waits. A program that takes more computes
// between its tests, and must not sleep. A test takes 0.2 to 0.5 us. The program may yield once until the next test. A
// yield takes at most as long as two calls of TestBackoff::usage(). Both grow with the price of a system call. On one
// virtual machine a yield takes 1.3 us, and a call of usage() 2.4 us. While other programs use the caches, a yield
// takes up to 3.6 us. A yield that switches threads takes 1 to 2 us more, and up to 25 us if the other thread leaves
// nothing in the caches.
constexpr std::chrono::nanoseconds allowed_in_row(int tests, long switches, std::chrono::nanoseconds usage) {
  return (500ns + 2 * usage) * tests + 30us * switches;
}
// Returns the maximum CPU time from a sleep to the end of the next test in a program that only waits. The wake-up takes
// 7 to 12 us of it, and more on a busy virtual machine.
constexpr std::chrono::nanoseconds allowed_after_sleep(long switches) { return 50us + 2us * switches; }

std::atomic<WaitHook> wait_hook = nullptr;

/// Time at which the waits of this process last ceased or will cease to sleep at once, as a count of Clock. If two
/// threads note a late yield at the same time, one of them may be lost.
std::atomic<Clock::rep> last_until = 0;
/// Time for which the waits sleep at once, as the last late yield has set it.
std::atomic<std::chrono::nanoseconds> last_length = 0ns;

bool sleeps_at_once(Clock::time_point now) noexcept {
  Clock::rep until = sleep_at_once_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (now.time_since_epoch().count() < until) return true;
  // Another thread may have noted a late yield just now, which must stay.
  sleep_at_once_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);
  return false;
}
void note_late_yield(Clock::time_point now) noexcept {
  const Clock::time_point last(Clock::duration(last_until.load(std::memory_order_relaxed)));
  std::chrono::nanoseconds length = last_length.load(std::memory_order_relaxed);
  if (now - last > kLateYieldsRecurIn)
    length = kSleepAtOnceAtFirst;
  else if (now > last)  // else another thread has noted that its yield was late at the same time
    length = std::min<std::chrono::nanoseconds>(2 * length, kSleepAtOnceAtMost);
  const Clock::rep until = (now + length).time_since_epoch().count();
  last_length.store(length, std::memory_order_relaxed);
  last_until.store(until, std::memory_order_relaxed);
  sleep_at_once_until.store(until, std::memory_order_relaxed);
}

void sleep_for(std::chrono::nanoseconds time) noexcept {
  const timespec request{0, static_cast<long>(time.count())};
  ::nanosleep(&request, nullptr);
}
/// Sleeps for an eighth of a wait that has lasted `waited`, at most for `longest`.
void sleep_after(std::chrono::nanoseconds waited, std::chrono::nanoseconds longest) noexcept {
  sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 8, kShortestSleep, longest));
}

}  // namespace

std::atomic<Clock::rep> sleep_at_once_until = 0;

void set_wait_hook(WaitHook hook) noexcept { wait_hook.store(hook); }

void Backoff::wait() noexcept {
  const auto now = Clock::now();
  if (started_ == Clock::time_point{}) started_ = now;
  if (now - started_ > kYield || sleeps_at_once(now)) {
    sleep_after(now - started_, longest_sleep_);
  } else {
    ::sched_yield();
    if (const auto after = Clock::now(); after - now > kLateYield) note_late_yield(after);
  }
}

TestBackoff::Usage TestBackoff::usage() noexcept {
  timespec cpu{};  // exact to the nanosecond; the times of getrusage() may be as old as the last timer tick
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return {.cpu = std::chrono::seconds(cpu.tv_sec) + std::chrono::nanoseconds(cpu.tv_nsec),
          .switches = used.ru_nvcsw + used.ru_nivcsw};
}

std::chrono::nanoseconds TestBackoff::cost_of_usage() noexcept {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 3; ++i) {
    const auto begun = usage().cpu;
    least = std::min(least, usage().cpu - begun);
  }
  return least;
}

void TestBackoff::fruitless() noexcept {
  if (calls_ == 0) begun_ = usage();
  if (++calls_ < (sleeps_at_once(Clock::now()) ? kTestsAfterLateYield : kTests)) return;
  const Usage now = usage();
  const long switches = now.switches - begun_.switches;
  const auto allowed = slept_ ? allowed_after_sleep(switches) : allowed_in_row(calls_, switches, cost_of_usage());
  if (now.cpu - begun_.cpu > allowed) return fruitful();
  sleep_for(kShortestSleep);
  slept_ = true;
  begun_ = usage();
}

void CollectiveBackoff::yield() noexcept { ::sched_yield(); }

bool CollectiveBackoff::wait_with_clock(Wire* wire) {
  const auto now = Clock::now();
  if (started_ == Clock::time_point{}) started_ = last_turn_ = now;
  if (looked_ == Clock::time_point{}) looked_ = now;
  const auto waited = now - started_;
  // The turns since the last reading of the clock take microseconds, unless one of them yielded and the yield was late.
  if (oversubscribed_ && now - last_turn_ > kLateYield) note_late_yield(now);
  last_turn_ = now;
  sleeps_at_once_ = oversubscribed_ && sleeps_at_once(now);
  const WaitHook hook = wait_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook();
  if (hook != nullptr && wire != nullptr) wire->wait_for_event(0ns);
  const auto yield_for = sleeps_at_once_ ? 0ns : hook == nullptr && oversubscribed_ ? kYieldIfOversubscribed : kYield;
  if (hook == nullptr && wire != nullptr && waited > std::min<std::chrono::nanoseconds>(yield_for, kSpinForWire)) {
    wire->wait_for_event(kLongestSleep);
    last_turn_ = Clock::now();
  } else if (waited >= yield_for) {
    sleep_after(waited, hook != nullptr ? kLongestSleepBetweenCalls : kLongestSleep);
    last_turn_ = Clock::now();
  } else if (oversubscribed_ || (waited > kSpin && (hook == nullptr || turns_ % kTurnsPerLook == 0))) {
    yield();
  } else {
    relax();
  }
  // Sleeps and calls of the hook happen in this function only, so it must run in every turn. Yields and spins also
  // happen in turns that do not read the clock.
  turns_per_look_ = waited >= yield_for || (hook != nullptr && waited > kSpin) ? 1 : kTurnsPerLook;
  if (now - looked_ < kLookEvery) return false;
  looked_ = now;
  return true;
}

}  // namespace collectives
