// Implementation of OperationSteps, which starts and progresses single operations. An operation is one call of a
// communicator.
//
// A test may ask for faults: deliberate failures of a rank in a chosen phase of a chosen call. The functions in this
// file cause these faults. The function step(), which a call without faults uses, is inline in operation_steps.hpp.
#include "communicator/operation_steps.hpp"

namespace collectives {

bool OperationSteps::step_with_faults(Operation& operation) {
  if (operation.is_queued()) {
    injection_->enter(sequence_.newest() + 1, Fault::Phase::begin);
    start(operation);
    enter(operation, Fault::Phase::sent);
  }
  if (!progress(operation)) return false;
  enter(operation, Fault::Phase::end);
  return true;
}

bool OperationSteps::retire(const Operation& operation) const {
  if (!device_calls_.retire(operation)) return false;
  enter(operation, Fault::Phase::end);
  return true;
}

void OperationSteps::publish_refusal(Operation& refusal) {
  sequence_.announce(refusal);
  sequence_.publish(refusal, resources_.observer->time(refusal));
}

}  // namespace collectives
