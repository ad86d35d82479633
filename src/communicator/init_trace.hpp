// Opening of the trace while a communicator is constructed. A trace is a file with times of operations.
//
// The environment variable COLLECTIVES_TRACE of a rank names the file. Ranks of one host with equal names share one
// file. On the second and each further host, the library appends ".host1", ".host2" and so on to the name.
//
// Each event in the file states a rank. A process may have different ranks in several communicators. Its events always
// state its rank in the first communicator that it made. If the ranks of a host are threads of one process, an event
// states the rank in the first communicator of its thread.
#pragma once

#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns a hash of `path` in 16 hexadecimal digits. Ranks exchange these hashes in place of paths, to find out which
/// ranks share a file. Returns an empty text if `path` is empty. Also returns an empty text if the thread or its
/// process already has a trace identity. A trace identity is the file for events, and the rank that they state.
std::string trace_number(const std::string& path);

/// Returns the trace identity of the calling thread. If `context` holds a trace_number() of any rank, the ranks with a
/// number first open their files. All ranks then make two exchanges over the bootstrap. If one rank fails, all ranks
/// throw its error.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
