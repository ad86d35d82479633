// OperationSteps: starts and progresses single operations, and causes the faults that the program has asked for.
//
// An operation is one call, from its issue to its end. The function step() starts an operation that has not begun, and
// progresses it as far as possible without waiting. To start an operation is to number it, to publish its arrival
// record and to give its work to the executor or to the GPU. The object owns the CallSequence, which numbers calls.
//
// Faults. A fault is a deliberate failure of this rank at a phase of a call, for tests of programs
// (injection/injection.hpp). The object causes the faults that the program has asked for. Price: without faults, step()
// makes one more comparison.
//
// OperationQueue owns the object and is its only caller. OperationQueue puts operations in order, and ends them with an
// error after a failure. For speed, step() is inline.
#pragma once

#include <cstdint>

#include "communicator/call_sequence.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/host_operation.hpp"
#include "communicator/operation.hpp"

namespace collectives {

class OperationSteps {
 public:
  OperationSteps(const CommunicatorResources& resources, const DeviceCalls& device_calls) noexcept
      : resources_(resources),
        device_calls_(device_calls),
        injection_(resources.context.injection.get()),
        sequence_(resources) {}

  CallSequence& sequence() noexcept { return sequence_; }
  const CallSequence& sequence() const noexcept { return sequence_; }
  /// Starts the operation if it has not begun, and progresses it. Returns whether it has completed. Throws the error if
  /// the operation fails.
  inline bool step(Operation& operation);
  /// Returns whether an operation whose work is all in GPU streams has ended. Throws its error.
  bool retire(const Operation& operation) const;
  /// Gives a refusal its number, and publishes its arrival record. Throws if the communicator has failed.
  void publish_refusal(Operation& refusal);
  /// Causes the faults of an operation for which the rank waits.
  void enter_wait(const Operation& operation) const { enter(operation, Fault::Phase::wait); }

 private:
  inline void start(Operation& operation);
  inline bool progress(Operation& operation);
  /// Does what step() does, and causes the faults of each phase.
  bool step_with_faults(Operation& operation);
  void enter(const Operation& operation, Fault::Phase phase) const {
    if (injection_ != nullptr) injection_->enter(operation.sequence, phase);
  }

  const CommunicatorResources& resources_;
  const DeviceCalls& device_calls_;
  Injection* const injection_;  // faults that the program has asked for; null: none
  CallSequence sequence_;
};

void OperationSteps::start(Operation& operation) {
  sequence_.announce(operation);
  const std::uint64_t started = resources_.observer->time(operation);
  if (!operation.on_device) resources_.executor->start(operation.job);  // peers receive it before the arrival record
  sequence_.publish(operation, started);
  if (operation.on_device) device_calls_.start(operation);
}

bool OperationSteps::progress(Operation& operation) {
  return operation.on_device ? device_calls_.progress(operation)
                             : progress_on_host(operation, *resources_.executor, *resources_.observer);
}

bool OperationSteps::step(Operation& operation) {
  if (injection_ != nullptr) [[unlikely]]
    return step_with_faults(operation);
  if (operation.is_queued()) start(operation);
  return progress(operation);
}

}  // namespace collectives
