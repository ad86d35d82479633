// How ranks come to be connected by NCCL: they have agreed that they can be (meet.hpp), and know a place to tell one
// another of failures (watch.hpp). Nobody waits for a rank that has failed.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "device/clique.hpp"
#include "meet.hpp"
#include "watch.hpp"

namespace collectives {

/// Waits until `clique` is settled, or someone has failed: what fails here is made known to all. Throws Error.
void settle(Clique& clique, std::string_view operation, const Meeting& meeting, Watch& watch, Deadline deadline);

/// This rank's place among all. Two exchanges. What fails on one rank fails on all, with the same words.
std::unique_ptr<Clique> meet_by_nccl(Bootstrap& bootstrap, const Meeting& meeting, Watch& watch,
                                     std::chrono::nanoseconds timeout);

}  // namespace collectives
