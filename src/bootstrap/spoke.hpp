// Any other rank of a rendezvous: it holds one connection, to rank 0.
#pragma once

#include <memory>

#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

/// Returns when every rank has come. Throws as rendezvous() does.
std::unique_ptr<Bootstrap> make_spoke(const World& world, Deadline deadline);

}  // namespace collectives::tcp
