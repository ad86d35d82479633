// Spoke: a rank other than rank 0 in a rendezvous over TCP. In a rendezvous, all ranks connect to rank 0, so that they
// can exchange bytes before they have a transport (rendezvous.hpp).
#pragma once

#include <memory>

#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

/// Returns this rank's bootstrap once every rank has connected. Throws the errors of rendezvous().
std::unique_ptr<Bootstrap> make_spoke(const World& world, Deadline deadline);

}  // namespace collectives::tcp
