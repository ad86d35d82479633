// Spin lock: a lock for short sections that take microseconds, and that two threads rarely enter at the same time.
// Locking takes one atomic exchange of a word.
#pragma once

#include <atomic>

#include "base/wait.hpp"

namespace collectives {

class SpinLock {
 public:
  void lock() noexcept {
    if (try_lock()) return;
    for (Backoff backoff; !try_lock();) backoff.wait();
  }
  bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace collectives
