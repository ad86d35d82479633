// CallSequence: the numbers of a communicator's calls, and what this rank publishes about them.
//
// Operations begin in the order of issue, and each takes the next number when it begins. The arrival record of a call
// holds its number and its signature. Peers that wait read the record. The failure detector also publishes the number
// of the newest operation before which all have completed. Peers read it if this rank is lost.
//
// OperationQueue owns the object and is its only caller. Lock: the caller holds ProgressThread::guard().
#pragma once

#include <algorithm>
#include <cstdint>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation.hpp"

namespace collectives {

class CallSequence {
 public:
  explicit CallSequence(const CommunicatorResources& resources) noexcept : resources_(resources) {}

  /// Returns the number of the newest operation that has begun.
  std::uint64_t newest() const noexcept { return begun_; }
  /// Gives the operation its number and tag, and reads control messages. Throws the communicator's failure.
  inline void announce(Operation& operation);
  /// Publishes the arrival record. `started`: Observer::time() when the operation began.
  inline void publish(Operation& operation, std::uint64_t started);
  /// Records that an operation has completed. `in_flight`: oldest operation in flight, or null. Operations in flight do
  /// not count as completed.
  void complete(std::uint64_t sequence, const Operation* in_flight) noexcept {
    finished_ = std::max(finished_, sequence);
    resources_.failure_detector->complete(in_flight == nullptr ? finished_
                                                               : std::min(finished_, in_flight->sequence - 1));
  }
  /// Records a failed operation that has not begun, because its peers have recorded the call under its number.
  void fail(const Operation& operation) noexcept {
    begun_ = operation.sequence;
    resources_.observer->start(operation, resources_.observer->time(operation));
  }

 private:
  const CommunicatorResources& resources_;
  std::uint64_t begun_ = 0;
  std::uint64_t finished_ = 0;  // number of the newest operation that has completed
};

void CallSequence::announce(Operation& operation) {
  operation.sequence = begun_ + 1;  // errors name this number, even if the operation does not begin
  FailureDetector& failure_detector = *resources_.failure_detector;
  // A call that waits for no peer must read control messages now. It will not wait, so it cannot read them later.
  if (resources_.context.wire != nullptr)
    operation.call->waits_for_no_peer ? failure_detector.check_control() : failure_detector.check_control_throttled();
  failure_detector.check();
  begun_ = operation.sequence;
  operation.job.tag = operation.job.host.tag = make_tag(operation.sequence, operation.call->hash);
}

void CallSequence::publish(Operation& operation, std::uint64_t started) {
  FailureDetector& failure_detector = *resources_.failure_detector;
  failure_detector.arrive(operation.sequence, operation.call->words);
  resources_.observer->start(operation, started);
  operation.phase.store(Operation::Phase::running, std::memory_order_relaxed);
  if (operation.call->waits_for_no_peer)
    failure_detector.check_lost_peers({operation.sequence, operation.call->signature, operation.name});
}

}  // namespace collectives
