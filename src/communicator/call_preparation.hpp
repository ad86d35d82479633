// CallPreparation: checks and plans the calls of a communicator before they begin, or refuses them.
//
// The function check() checks the arguments of a call. The function prepare() then determines whether the buffers are
// in host or GPU memory, and plans the call. A rank refuses a call if its arguments are invalid or the library cannot
// perform it. The call then throws an error and becomes a refusal in the queue (operation_queue.hpp).
//
// Communicator::Impl owns the CallPreparation. The only state of a CallPreparation is the last blocking call. The
// functions prepare() and refuse_locked() require the communicator's lock, ProgressThread::guard(). The functions
// refuse(), check() and check_member() take the lock themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>

#include "collectives/error.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/operation_queue.hpp"
#include "communicator/progress_thread.hpp"
#include "communicator/repeated_call.hpp"
#include "core/call.hpp"

namespace collectives {

/// Throws the error of a refused call. The error text begins with the number of the call and the name of the tensor.
/// Errors that other ranks throw about this call begin alike. `number`: result of CallPreparation::refuse().
[[noreturn]] void throw_refusal(const Error& error, const Call& call, std::uint64_t number, std::string_view name);

class CallPreparation {
 public:
  CallPreparation(const CommunicatorResources& resources, const DeviceCalls& device_calls, OperationQueue& queue,
                  ProgressThread& progress_thread) noexcept
      : resources_(resources), device_calls_(device_calls), queue_(queue), progress_thread_(progress_thread) {}

  /// Returns the last blocking call. If a call repeats it, the new call is neither checked nor planned.
  RepeatedCall& repeated_call() noexcept { return repeated_call_; }
  /// Adds the refusal of a call to the queue. `why`: text of the error that the rank throws. `name`: name of the
  /// tensor. Returns the number of the call. Does nothing after a failure of the communicator, and then returns 0.
  std::uint64_t refuse(const Call& call, std::string_view why, std::string_view name = {}) noexcept;
  /// Does what refuse() does. Requires the lock.
  std::uint64_t refuse_locked(const Call& call, std::string_view why, std::string_view name) noexcept;
  /// Checks the arguments of a call and the name of its tensor. Refuses the call and throws Error{invalid_argument} if
  /// they are invalid.
  void check(const Call& call, const Options& options);
  /// Places and plans a call whose arguments have been checked: DeviceCalls::place(), then plan(). If `refused` is not
  /// null, the call is in device memory and is not placed again. Stores the error that place() returns in `refused`.
  /// Refuses the call and throws Error as check() does. Requires the lock.
  std::shared_ptr<const PlannedCall> prepare(Call& call, const Options& options, std::exception_ptr& refused);
  /// Checks a tensor of a Group: check(), then prepare(). Throws Error, and then refuses the call. `is_planned`:
  /// whether the group has another tensor with this plan. Without a GPU, the call is then not prepared.
  void check_member(Call& call, const Options& options, bool is_planned, std::exception_ptr& refused);
  /// Returns the plan of a call. Requires that the arguments of the call have been checked. The reference is valid
  /// until the next plan(). Throws the errors of Planner::plan() and TopK.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options);
  /// Returns the plan that a call with these arguments would have. Performs no call, so it needs no buffers.
  std::shared_ptr<const PlannedCall> plan_of(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                             const Options& options);

 private:
  const CommunicatorResources& resources_;
  const DeviceCalls& device_calls_;
  OperationQueue& queue_;
  ProgressThread& progress_thread_;
  RepeatedCall repeated_call_;
};

}  // namespace collectives
