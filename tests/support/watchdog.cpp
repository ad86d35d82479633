// Implementation of the watchdog. Its thread sleeps until the running test is late.
#include "support/watchdog.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace collectives::testing {

std::chrono::seconds Watchdog::limit_from_environment() {
  const char* const text = std::getenv("COLLECTIVES_TEST_WATCHDOG");
  const long seconds = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return std::chrono::seconds(seconds > 0 ? seconds : 120);
}

Watchdog::Watchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { watch(); }) {
  // Waits until the thread runs. A test may fork at once, and the child must not inherit a lock of the allocator that
  // the starting thread holds.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return watching_; });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::OnTestStart(const ::testing::TestInfo& test) {
  const std::lock_guard lock(mutex_);
  test_ = std::string(test.test_suite_name()) + "." + test.name();
  started_ = std::chrono::steady_clock::now();
  changed_.notify_one();
}

void Watchdog::OnTestEnd(const ::testing::TestInfo& /*test*/) {
  const std::lock_guard lock(mutex_);
  test_.clear();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  watching_ = true;
  changed_.notify_one();
  while (!stop_) {
    if (test_.empty()) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < started_ + limit_) {
      changed_.wait_until(lock, started_ + limit_);
    } else {
      std::fprintf(stderr, "watchdog: %s has run for %lld s\n", test_.c_str(), static_cast<long long>(limit_.count()));
      std::fflush(nullptr);
      ::_exit(3);
    }
  }
}

}  // namespace collectives::testing
