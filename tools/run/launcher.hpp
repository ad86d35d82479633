// The launcher of collectives_run: starts the ranks of a program on this host. After a failure, it finds the rank that
// failed first, and ends the other ranks.
#pragma once

#include "tools/run/arguments.hpp"

namespace collectives::run {

/// Starts the ranks and waits for all of them. Returns the exit status. Throws std::runtime_error.
int launch(const Arguments& arguments);

}  // namespace collectives::run
