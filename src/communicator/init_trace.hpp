// Opening of the trace while a communicator is constructed. A trace is a file with times of operations.
//
// The environment variable COLLECTIVES_TRACE of a rank names the file. Ranks of one host with equal names share one
// file. On the second and each further host, the library appends ".host1", ".host2" and so on to the name.
//
// Each event in the file states a rank. A program may make several communicators, in which it has different ranks.
// Events always state the rank in the first communicator: that of the process, or that of the thread if the ranks of a
// host are threads of one process.
#pragma once

#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

/// Returns a hash of `path` in 16 hexadecimal digits. Ranks exchange these hashes in place of paths, to find out which
/// ranks share a file. Returns an empty text if `path` is empty, or if the thread or its process already has a trace
/// identity, which is the file and the rank for its events.
std::string trace_number(const std::string& path);

/// Returns the trace identity of the calling thread. If any rank has a trace_number() in `context`, these ranks first
/// open their files. Opening takes two exchanges over the bootstrap, in which all ranks take part. If one rank fails,
/// all ranks throw its error.
TraceIdentity trace_identity(Bootstrap&, const CommunicatorContext& context, Deadline);

}  // namespace collectives
