// Command `collectives_info watch`: prints counters and the last operations of processes of this machine that use the
// library. Each of these processes has a process page, shared memory with these data (monitoring/process_page.hpp). The
// command reads the pages that its user may read.
#pragma once

#include "tools/arguments.hpp"

namespace collectives {

/// Prints the counters once if `once` or `json` is set, otherwise after every interval. Throws std::invalid_argument or
/// Error with a text of one line.
void answer(const MonitorOptions&);

}  // namespace collectives
