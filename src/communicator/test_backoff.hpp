// Test backoff of a thread: lets a thread sleep if it tests in vain. Each thread has one for all communicators.
#pragma once

#include "base/wait.hpp"

namespace collectives {

/// Notes the result of a test. `ended`: whether the operation has ended. `moved`: whether any operation progressed.
/// `oversubscribed`: whether the host has more ranks than cores.
inline void note_test(bool ended, bool moved, bool oversubscribed) noexcept {
  thread_local TestBackoff backoff;
  if (ended || moved)
    backoff.fruitful();
  else if (oversubscribed)
    backoff.fruitless();
}

}  // namespace collectives
