// CallSequence: numbers the calls of a communicator. It also publishes which calls this rank has entered and completed,
// so that other ranks can read it.
//
// An operation is one call, from its issue to its end. Operations begin in the order of issue. An operation gets the
// next number when it begins. A signature holds the arguments of a call on which all ranks must agree. A running hash
// covers the signatures and tensor names of all operations so far. This rank then publishes the arrival record of the
// operation: its number, the running hash and its signature. Peers that wait long for this rank read the record. This
// rank also publishes a second number: all operations up to this number have completed. Peers read the second number if
// the process of this rank has ended.
//
// OperationSteps owns the object. Only OperationSteps and OperationQueue call it. The caller must hold the
// communicator's lock, ProgressThread::guard().
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
  /// Gives the operation its number and tag. With a wire between hosts, may also read control messages, by which ranks
  /// report failures. Throws if the communicator has failed.
  inline void announce(Operation& operation);
  /// Publishes the arrival record of a begun operation. `started`: Observer::time() when the operation began.
  inline void publish(Operation& operation, std::uint64_t started);
  /// Records that an operation has completed. `in_flight`: oldest operation whose work is still in GPU streams, or
  /// null. That operation and later ones are not published as completed.
  void complete(std::uint64_t sequence, const Operation* in_flight) noexcept {
    finished_ = std::max(finished_, sequence);
    resources_.failure_detector->complete(in_flight == nullptr ? finished_
                                                               : std::min(finished_, in_flight->sequence - 1));
  }
  /// Records an operation that failed before it began. The operation keeps its number, because peers may have recorded
  /// the call under that number.
  void fail(const Operation& operation) noexcept {
    begun_ = operation.sequence;
    resources_.observer->start(operation, resources_.observer->time(operation));
  }

 private:
  const CommunicatorResources& resources_;
  std::uint64_t begun_ = 0;
  RunningHash hash_;            // hash of all operations that have begun
  std::uint64_t finished_ = 0;  // number of the newest operation that has completed
};

void CallSequence::announce(Operation& operation) {
  operation.sequence = begun_ + 1;  // set first, because an error text contains it even if the operation does not begin
  FailureDetector& failure_detector = *resources_.failure_detector;
  // A rank reads control messages while it waits. A call that waits for no peer, such as a broadcast on its root,
  // therefore always reads them here. Other calls read them here only at intervals.
  if (resources_.context.wire != nullptr)
    operation.call->waits_for_no_peer ? failure_detector.check_control() : failure_detector.check_control_throttled();
  failure_detector.check();
  begun_ = operation.sequence;
  hash_.append(operation.hash);
  operation.job.tag = operation.job.host.tag = make_tag(operation.sequence, hash_.after);
}

void CallSequence::publish(Operation& operation, std::uint64_t started) {
  FailureDetector& failure_detector = *resources_.failure_detector;
  if (operation.has_details)
    failure_detector.publish_details(operation.sequence, operation.names(), operation.call->details);
  failure_detector.arrive(operation.sequence, hash_, operation.call->words);
  resources_.observer->start(operation, started);
  operation.phase.store(Operation::Phase::running, std::memory_order_relaxed);
  if (operation.call->waits_for_no_peer)
    failure_detector.check_lost_peers({operation.sequence, operation.call->signature, operation.name});
}

}  // namespace collectives
