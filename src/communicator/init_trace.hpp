// Opening of a trace, the file that COLLECTIVES_TRACE names. A trace is opened while a communicator is constructed. A
// thread writes all its events under one rank, that of its first communicator.
#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns whether the calling thread or its process has a trace identity, the file and the rank for its events.
bool has_trace_identity();

/// Returns the identity of the calling thread. If rank 0 wants a trace, all ranks open it in the first communicator of
/// a thread. That takes two exchanges. An error on one rank is thrown on all ranks.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
