// Command `collectives_info watch`: prints counters and operations of processes of this machine
// (monitoring/process_page.hpp).
#pragma once

#include "tools/arguments.hpp"

namespace collectives {

/// Prints the counters once if `once` or `json` is set, otherwise after every interval. Throws std::invalid_argument or
/// Error with a text of one line.
void answer(const MonitorOptions&);

}  // namespace collectives
