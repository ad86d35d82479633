// Command `collectives_info simulate`: prints the time of a call on a machine that need not exist
// (tools/simulation.hpp).
#pragma once

#include "tools/arguments.hpp"

namespace collectives {

/// Simulates the call and prints the result. Throws std::invalid_argument or Error with a text of one line.
void answer(const SimulateOptions&);

}  // namespace collectives
