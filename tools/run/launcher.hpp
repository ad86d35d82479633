// The ranks from start to end: who runs, who failed first, when the others are ended.
#pragma once

#include "tools/run/arguments.hpp"

namespace collectives::run {

/// Starts the ranks and waits for all of them; the exit status. Throws std::runtime_error.
int launch(const Arguments& arguments);

}  // namespace collectives::run
