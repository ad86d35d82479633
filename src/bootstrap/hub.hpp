// Rank 0 of a rendezvous over TCP (rendezvous.hpp). It listens, and holds a connection to every other rank.
#pragma once

#include <memory>

#include "bootstrap/sockets.hpp"
#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

/// Returns once every rank has connected. Throws the errors of rendezvous().
std::unique_ptr<Bootstrap> make_hub(const World& world, Socket listener, Deadline deadline);

}  // namespace collectives::tcp
