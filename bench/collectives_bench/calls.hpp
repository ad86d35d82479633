// Calls of this library that collectives_bench, the benchmark of collectives, times.
#pragma once

#include <vector>

#include "collectives/communicator.hpp"
#include "collectives_bench/buffers.hpp"

namespace collectives::bench {

/// Performs a blocking call. The operation ping_pong is a send and a receive. Ranks with even numbers send first, and
/// ranks with odd numbers receive first.
void perform(Communicator& comm, const Call& call, const Options& options);

/// Adds the call to a group. Requires that the operation is a collective, not a message.
void add_to(Group& group, const Call& call, const Options& options);

/// Makes persistent calls, which can be started many times. Started one after another, they do the same as perform().
std::vector<PersistentCall> make_persistent(Communicator& comm, const Call& call, const Options& options);

}  // namespace collectives::bench
