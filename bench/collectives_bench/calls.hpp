// Calls of the library that the benchmark times.
#pragma once

#include <vector>

#include "collectives/communicator.hpp"
#include "collectives_bench/buffers.hpp"

namespace collectives::bench {

/// Performs a call. A ping_pong is a send and a receive, of which ranks with even numbers do the send first.
void perform(Communicator& comm, const Call& call, const Options& options);

/// Makes persistent calls that do what perform() does, one after another.
std::vector<PersistentCall> make_persistent(Communicator& comm, const Call& call, const Options& options);

}  // namespace collectives::bench
