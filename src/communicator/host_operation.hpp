// Functions for operations on host memory (CPU memory). A Job describes work for the executor: one operation, or one
// phase of an operation. The functions translate a call into a Job, start a call with top-k, and progress the Job. A
// call with top-k sends only selected elements, in several phases.
//
// Communicator::Impl describes a call before OperationQueue progresses the operation. DeviceCalls also uses compress()
// and progress_on_host(), because some operations on GPU memory are partly done in host memory. The functions hold no
// state. The caller must hold the communicator's lock, ProgressThread::guard().
#pragma once

#include <chrono>
#include <memory>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation.hpp"
#include "core/call.hpp"

namespace collectives {

/// Describes a call in `operation` and marks the operation as queued.
void describe(Operation& operation, const Call& call, const Options& options,
              const std::shared_ptr<const PlannedCall>& planned, const CommunicatorResources& resources);

/// Describes the buffers of a call in `operation`, which already describes a call with this plan.
void describe_buffers(Operation& operation, const Call& call, const PlannedCall& planned,
                      const CommunicatorResources& resources);

/// Starts a call with top-k. If the plan is sparse, selects the values to send. If the plan sends the whole vector,
/// adds the residual to the vector. The residual is the sum of values that earlier calls did not send. Returns whether
/// the executor has to perform `operation.job`. If not, the operation is complete. For a call on host memory,
/// Communicator::Impl calls compress() before it queues the operation. The transport between hosts can therefore carry
/// data of earlier operations during compress().
bool compress(Operation& operation, const CommunicatorResources& resources);

/// Progresses the operation in the executor. Starts the next phase when one has ended. Returns true when the operation
/// has completed.
inline bool progress_on_host(Operation& operation, Executor& executor, Observer& observer) {
  for (;;) {
    while (!executor.progress())
      if (operation.multi_phase == nullptr || !operation.multi_phase->local_work()) return false;
    if (operation.multi_phase == nullptr) return true;
    observer.phase(Trace::Phase::top_k);
    if (!operation.multi_phase->next(operation.job)) return true;
    executor.start(operation.job);
  }
}

}  // namespace collectives
