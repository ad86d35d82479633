// Opening of a trace while a communicator is constructed. A trace records the times of operations in one file per host.
// COLLECTIVES_TRACE of each rank names its file, on other hosts than that of rank 0 with ".host1" and so on behind it.
// All events of a thread carry one rank. If the ranks of a host are
// threads, it is the thread's rank in its first communicator. If ranks are processes, it is the process's rank in its
// first communicator.
#pragma once

#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns a number for the file that the calling thread is about to open for its trace: 16 digits, a hash of `path`.
/// Returns an empty text if `path` is empty, or if the thread or its process has a trace identity. A trace identity is
/// the file and the rank for the events of a thread. Ranks exchange these numbers in place of paths.
std::string trace_number(const std::string& path);

/// Returns the trace identity of the calling thread. If `context` has the number of any rank's trace, the ranks that
/// have one first open their files. Opening takes two exchanges over the bootstrap, in which all ranks take part. An
/// error on one rank is thrown on all ranks.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
