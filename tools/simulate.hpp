// Command `collectives_info simulate`: prints how long a collective would take on a machine that need not exist.
// tools/simulation.hpp describes the simulation.
#pragma once

#include "tools/arguments.hpp"

namespace collectives {

/// Simulates the call and prints the result. Throws std::invalid_argument or Error with a text of one line.
void answer(const SimulateOptions&);

}  // namespace collectives
