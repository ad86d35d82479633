// Hub: rank 0 of a rendezvous over TCP. In a rendezvous, all ranks connect, so that they can exchange bytes before they
// have a transport (rendezvous.hpp). The hub accepts the connections of all other ranks.
#pragma once

#include <memory>

#include "bootstrap/sockets.hpp"
#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

/// Returns rank 0's bootstrap once every rank has connected. Throws the errors of rendezvous().
std::unique_ptr<Bootstrap> make_hub(const World& world, Socket listener, Deadline deadline);

}  // namespace collectives::tcp
