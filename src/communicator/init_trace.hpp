// Opening of a trace while a communicator is constructed. A trace records the times of operations in one file per host.
// COLLECTIVES_TRACE names the file of rank 0's host. All events of a thread carry one rank. If the ranks of a host are
// threads, it is the thread's rank in its first communicator. If ranks are processes, it is the process's rank in its
// first communicator.
#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns whether the calling thread or its process has a trace identity. A trace identity is the file and the rank
/// for the events of a thread.
bool has_trace_identity();

/// Returns the trace identity of the calling thread. If `context.trace` is not empty, each rank first opens the trace
/// file of its host. Opening takes two exchanges over the bootstrap. An error on one rank is thrown on all ranks.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
