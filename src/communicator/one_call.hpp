// OneCall: refuses a second call of a communicator while a call of another thread is under way.
//
// A communicator accepts one call at a time. A call sets a flag until it ends, and a call that finds the flag set
// throws Error{invalid_argument}. The flag is read and written without an atomic exchange, which would cost 6 ns. Two
// calls that begin within the same nanoseconds may therefore both miss the flag.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string>

#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives {

class OneCall {
 public:
  /// A call, from construction to destruction.
  class Entered {
   public:
    /// Throws Error{invalid_argument} if a call is under way. `self`: the own rank.
    Entered(OneCall& calls, Rank self, Collective collective) : entered_(calls.entered_) {
      if (entered_.load(std::memory_order_relaxed)) refuse(self, collective);
      entered_.store(true, std::memory_order_relaxed);
    }
    ~Entered() { entered_.store(false, std::memory_order_relaxed); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    std::atomic<bool>& entered_;
  };

 private:
  [[noreturn]] static void refuse(Rank self, Collective collective) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("rank {}: {}: another thread is in a call of this communicator, which accepts one call at a "
                    "time: make a communicator for each thread by split()",
                    self, to_string(collective)),
        self, self, std::string(to_string(collective)));
  }

  std::atomic<bool> entered_ = false;
};

}  // namespace collectives
