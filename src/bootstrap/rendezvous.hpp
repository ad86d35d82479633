// Rendezvous of processes over TCP: connects all ranks, so that they can exchange bytes before they have a transport.
//
// Rank 0 listens. The other ranks connect to rank 0 and stay connected. In an exchange each rank sends its bytes to
// rank 0, which sends the bytes of all ranks to all ranks.
//
// Foreign processes, such as port scanners or ranks of another job, can also connect to rank 0. Each connection must
// prove that a rank of the job made it (greetings.hpp). While ranks wait, rank 0 sends them the list of missing ranks,
// and they log this list.
//
// A rank other than rank 0 reports to rank 0 when its deadline passes. If the process of a rank other than rank 0 ends,
// rank 0 sees that its connection closes. In both cases, rank 0 ends the rendezvous and sends the cause to all ranks,
// so every rank throws the same error. If rank 0 itself ends, every other rank throws an error that names rank 0. After
// any of these errors, each later exchange throws this error again.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"

namespace collectives {

/// Returns this rank's bootstrap once all ranks have connected.
///
/// `listening` is a socket that rank 0 has inherited from its launcher (COLLECTIVES_LISTEN_FD). If the socket listens
/// at world.port, rank 0 uses a duplicate of it. The original stays open (and close-on-exec), so that no other job
/// takes the port and the next communicator can use the socket. Other processes may connect to the original before the
/// next rendezvous begins. That rendezvous examines these connections like all others.
///
/// Throws Error{bootstrap} naming the host, port or rank at fault, Error{timeout} naming the missing ranks, or
/// Error{system} if no file descriptor is left.
std::unique_ptr<Bootstrap> rendezvous(const World& world, std::optional<int> listening,
                                      std::chrono::nanoseconds timeout);

}  // namespace collectives
