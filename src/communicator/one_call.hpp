// OneCall: refuses a call of one thread while another thread is in a call of the same kind on the same communicator.
//
// A communicator accepts one collective, one point-to-point call and one create_group() at a time. Each of these three
// kinds of calls has a OneCall with a flag. A call sets the flag when it begins, and clears it when it ends. A call
// that finds the flag set throws Error{invalid_argument}. The flag is read and written without an atomic exchange,
// which would cost 6 ns. If two calls begin within the same nanoseconds, neither of them may find the flag set.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>

#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives {

class OneCall {
 public:
  /// `kind`: name of the kind of calls, for the error text. Must be a literal.
  explicit OneCall(const char* kind) noexcept : kind_(kind) {}

  /// Object that exists during a call. Its constructor sets the flag, and its destructor clears the flag.
  class Entered {
   public:
    /// Throws Error{invalid_argument} if a call is under way. `self`: rank of the caller. `operation`: a Collective, or
    /// the name of the call.
    template <class Operation>
    Entered(OneCall& calls, Rank self, const Operation& operation) : entered_(calls.entered_) {
      if (entered_.load(std::memory_order_relaxed)) calls.refuse(self, name_of(operation));
      entered_.store(true, std::memory_order_relaxed);
    }
    ~Entered() { entered_.store(false, std::memory_order_relaxed); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    std::atomic<bool>& entered_;
  };

 private:
  static std::string_view name_of(Collective collective) noexcept { return to_string(collective); }
  static std::string_view name_of(std::string_view call) noexcept { return call; }
  [[noreturn]] void refuse(Rank self, std::string_view operation) const {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {}: {}: another thread is in a {} of this communicator, which accepts one {} at a "
                            "time: make a communicator for each thread by split()",
                            self, operation, kind_, kind_),
                self, self, std::string(operation));
  }

  const char* const kind_;
  std::atomic<bool> entered_ = false;
};

}  // namespace collectives
