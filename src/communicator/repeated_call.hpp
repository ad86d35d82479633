// RepeatedCall: recognizes a blocking call that repeats the last blocking call. A repeated call needs no checks and no
// planning.
//
// Only plain calls are recognized. A plain call has no other arguments than buffers, a built-in op, root, backend and
// timeout. If the communicator uses a GPU, no call is recognized. A repeated call allocates no memory, except that a
// transport may allocate memory for its first messages.
//
// The object stores the arguments of the last blocking call. Every blocking call without a compressor calls equals(),
// so all functions are inline. The function equals() needs no lock, because blocking calls of a communicator must not
// overlap.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/communicator.hpp"
#include "core/call.hpp"
#include "execution/job.hpp"

namespace collectives {

class RepeatedCall {
 public:
  /// Returns whether the call equals the last blocking call in all arguments. `timeout`: the timeout of the call.
  bool equals(const Call& call, const Options& options, std::chrono::nanoseconds timeout) const noexcept {
    return repeatable_ && call.input == last_.input && call.output == last_.output &&
           call.collective == last_.collective && same_op(call.op, last_.op) && call.root == last_.root &&
           call.foreign_type == last_.foreign_type && options.backend == backend_ && timeout == timeout_ &&
           is_plain(call, options);
  }
  /// Stores the arguments of a call. `on_device`: whether the communicator has a GPU. If equals() may recognize the
  /// call, `job` gets a new number for its buffers. Collectives through shared memory recognize repeated buffers by
  /// this number.
  void remember(const Call& call, const Options& options, std::chrono::nanoseconds timeout, bool on_device, Job& job) {
    last_ = call;
    backend_ = options.backend;
    timeout_ = timeout;
    repeatable_ = is_plain(call, options) && !on_device;  // with a GPU, the address may be other memory now
    if (repeatable_) job.host.known_as = next_operands();
  }
  /// Returns a new number for the operands of a call that will be repeated (HostOperands::known_as).
  std::uint64_t next_operands() noexcept { return ++operands_; }
  /// Makes equals() return false until the next remember().
  void forget() noexcept { repeatable_ = false; }

 private:
  /// Returns whether the call has only buffers, a built-in op, a root, a backend and a timeout. An op of the program is
  /// not allowed, because a new op may lie at the address of an old one.
  static bool is_plain(const Call& call, const Options& options) noexcept {
    return !call.has_counts && !call.split && call.layout == 0 && call.op.user_op() == nullptr &&
           options.name.empty() && !options.deterministic.has_value() && options.wire == WireFormat() &&
           options.compressor == nullptr && !options.stream;
  }

  Call last_;
  std::string backend_;
  std::chrono::nanoseconds timeout_{};
  bool repeatable_ = false;
  std::uint64_t operands_ = 0;  // last value of HostOperands::known_as that was handed out
};

}  // namespace collectives
