// Implementation of the waits. wait.hpp explains when a wait spins, yields and sleeps.
//
// A turn is one call of wait(). A late yield is a yield after which another program had the core for more than 2 ms.
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

constexpr auto kSpin = 5us;   // a longer wait may be for a rank on this core
constexpr auto kYield = 2ms;  // while each rank has a core, a yield disturbs little, and a sleep wakes up late
// Time to yield if ranks are oversubscribed. 8 ranks on 2 cores complete an 8-byte all-reduce in 15 us, so most waits
// end before. With 50 us the all-reduce took a fifth longer.
constexpr auto kYieldIfOversubscribed = 200us;
constexpr auto kSpinForWire = 300us;  // most messages arrive that soon, and a sleep wakes up late
constexpr auto kLookEvery = 1ms;
constexpr auto kShortestSleep = 1us;  // Linux adds 50 us of timer slack
constexpr auto kLateYield = 2ms;      // a busy program takes a time slice of 2.8 ms; ranks that wait take microseconds
// Time for which waits sleep at once after a late yield. The first late yield may be a disturbance by a system service,
// or the start of a process. Further ones come from a busy program. They double the time, up to one that is long
// compared with the slice.
constexpr auto kSleepAtOnceAtFirst = 2500us;
constexpr auto kSleepAtOnceAtMost = 20ms;
constexpr auto kLateYieldsRecurIn = 20ms;  // longest time from the end of sleeps to a late yield that doubles them

// Number of fruitless tests in a row after which the next ones sleep: 0.6 ms if each is followed by a yield of 0.6 us.
constexpr int kTests = 1000;
// Length of the row while waits sleep at once, because a yield may then take a time slice.
constexpr int kTestsAfterLateYield = 32;
// Returns the CPU time that such a row may take. A test takes 0.2 to 0.5 us, and the program may take 1 us until the
// next one. A yield that switches threads takes 1 to 2 us more.
constexpr std::chrono::nanoseconds allowed_in_row(int tests, long switches) { return 1500ns * tests + 2us * switches; }
// Returns the CPU time that may pass from a sleep to the end of the next test. The wake-up takes 7 to 12 us of it, and
// more on a busy virtual machine.
constexpr std::chrono::nanoseconds allowed_after_sleep(long switches) { return 50us + 2us * switches; }

std::atomic<WaitHook> wait_hook = nullptr;

/// The end of the last sleeps at once, and how long they were. Threads that race to note a late yield may lose one.
std::atomic<Clock::rep> last_until = 0;
std::atomic<std::chrono::nanoseconds> last_length = 0ns;

bool sleeps_at_once(Clock::time_point now) noexcept {
  const Clock::rep until = sleep_at_once_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (now.time_since_epoch().count() < until) return true;
  sleep_at_once_until.store(0, std::memory_order_relaxed);
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

void TestBackoff::fruitless() noexcept {
  if (calls_ == 0) begun_ = usage();
  if (++calls_ < (sleeps_at_once(Clock::now()) ? kTestsAfterLateYield : kTests)) return;
  const Usage now = usage();
  const long switches = now.switches - begun_.switches;
  const auto allowed = slept_ ? allowed_after_sleep(switches) : allowed_in_row(calls_, switches);
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
  // A few turns without progress take microseconds, unless a yield was late.
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
  // Sleeps and the hook are due in every turn. Yields and spins continue without the clock.
  turns_per_look_ = waited >= yield_for || (hook != nullptr && waited > kSpin) ? 1 : kTurnsPerLook;
  if (now - looked_ < kLookEvery) return false;
  looked_ = now;
  return true;
}

}  // namespace collectives
