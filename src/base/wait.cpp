#include "base/wait.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>

namespace collectives {
namespace {

using namespace std::chrono_literals;

constexpr auto kSpin = 5us;   // then somebody may be waiting for this very core
constexpr auto kYield = 2ms;  // yielding hands the core to whoever is waited for
constexpr auto kLongestSleep = 1ms;
constexpr auto kSpinForWire = 300us;  // messages come that soon, and who sleeps wakes up late
constexpr auto kLookEvery = 1ms;

std::atomic<WaitHook> wait_hook = nullptr;

}  // namespace

void set_wait_hook(WaitHook hook) noexcept { wait_hook.store(hook); }

void Waiter::yield() noexcept { ::sched_yield(); }

bool Waiter::pause_with_clock(Wire* wire) {
  const auto now = Clock::now();
  if (started_ == Clock::time_point{}) started_ = now;
  if (looked_ == Clock::time_point{}) looked_ = now;
  const auto waited = now - started_;
  const WaitHook hook = wait_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) {
    hook();
    if (wire != nullptr) wire->doze(std::chrono::nanoseconds(0));
    if (waited > kSpin) turns_per_look_ = 1;
    if (crowded_ || waited > kYield || (waited > kSpin && turns_ % kTurnsPerLook == 0)) yield();
  } else if (wire != nullptr && waited > kSpinForWire) {
    wire->doze(kLongestSleep);
  } else if (waited > kYield) {
    const auto sleep = std::min<std::chrono::nanoseconds>(waited / 8, kLongestSleep);
    const timespec time{0, static_cast<long>(sleep.count())};
    ::nanosleep(&time, nullptr);
  } else if (crowded_ || waited > kSpin) {
    yield();
  } else {
    relax();
  }
  if (now - looked_ < kLookEvery) return false;
  looked_ = now;
  return true;
}

}  // namespace collectives
