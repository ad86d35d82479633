// Opens the trace of COLLECTIVES_TRACE while a communicator is constructed, and remembers under which rank a thread
// writes.
#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns whether the calling thread or its process has a trace identity.
bool has_trace_identity();

/// Returns the identity of the calling thread. In the first communicator of a thread, and if rank 0 wants a trace, all
/// ranks open it in two exchanges; if that fails on one rank, it throws on all.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
