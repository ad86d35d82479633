// Trace of COLLECTIVES_TRACE: opens it while a communicator is constructed. Each thread keeps the rank under which it
// writes.
#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns whether the calling thread or its process has a trace identity.
bool has_trace_identity();

/// Returns the identity of the calling thread. If rank 0 wants a trace, all ranks open it in the first communicator of
/// a thread. That takes two exchanges. An error on one rank is thrown on all ranks.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
