// Backoff of Work::test(): lets a thread sleep for a moment if it calls test() again and again while no operation
// progresses. The thread sleeps only on a host with more ranks than cores, because other ranks may need its core.
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
