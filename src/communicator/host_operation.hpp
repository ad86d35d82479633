// Operations on host memory: their description as a Job, the phases of top-k, and their progress in the executor.
//
// Communicator::Impl describes a call before OperationQueue steps it. A device path may also ask for a job on host
// memory, so DeviceCalls uses these functions, too. They hold no state. Lock: the caller holds ProgressThread::guard().
#pragma once

#include <chrono>
#include <memory>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation.hpp"
#include "core/call.hpp"

namespace collectives {

/// Describes a call in `operation`, which is then queued.
void describe(Operation& operation, const Call& call, const Options& options,
              const std::shared_ptr<const PlannedCall>& planned, const CommunicatorResources& resources);

/// Selects the values to send, or adds the residual to a dense input. Returns whether a phase has to be performed.
/// Operations on host memory call it before they reach the head of the queue, while the wire carries earlier
/// operations.
bool compress(Operation& operation, const CommunicatorResources& resources);

/// Progresses the executor and starts further phases. Returns true when the operation has completed.
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
