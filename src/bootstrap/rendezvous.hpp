// Processes meet through rank 0: it listens, the others connect and stay connected. An exchange is a star: each sends
// its bytes to rank 0, which sends all of them to everybody.
//
// Whoever fails tells rank 0 (or rank 0 sees the connection close), rank 0 ends the rendezvous and tells the others
// why: every rank throws the same cause. A rendezvous that has ended stays so.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"

namespace collectives {

/// Returns when every rank of `world` has come. `listening`: a socket that listens at world.port already (an inherited
/// COLLECTIVES_LISTEN_FD): rank 0 takes it if that is what it is, marks it close-on-exec and leaves it open, so that
/// the port stays this job's.
/// Throws Error: bootstrap naming the host, port or rank at fault, timeout naming the ranks that did not come.
std::unique_ptr<Bootstrap> rendezvous(const World& world, std::optional<int> listening,
                                      std::chrono::nanoseconds timeout);

}  // namespace collectives
