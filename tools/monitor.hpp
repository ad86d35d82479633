// Command `collectives_info watch`: prints counters and last operations of the processes of this machine that have a
// communicator. It reads the process pages that its user may read (monitoring/process_page.hpp).
#pragma once

#include "tools/arguments.hpp"

namespace collectives {

/// Prints the counters once if `once` or `json` is set, otherwise after every interval. Throws std::invalid_argument or
/// Error with a text of one line.
void answer(const MonitorOptions&);

}  // namespace collectives
