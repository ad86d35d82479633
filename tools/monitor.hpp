// Command `collectives_info watch`: prints counters and operations of processes of this machine
// (monitoring/process_page.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace collectives {

/// Options of `collectives_info watch`, as the user has typed them.
struct MonitorOptions {
  bool once = false, json = false;
  int pid = 0;  ///< Process id. 0: all processes.
  std::string interval = "1s";
};

/// Adds the subcommand `watch` to `app`. Parsing the command line fills `question`.
CLI::App& add_monitor(CLI::App& app, MonitorOptions& question);

/// Prints the counters once if `once` or `json` is set, otherwise after every interval. Throws std::invalid_argument or
/// Error with a text of one line.
void answer(const MonitorOptions&);

}  // namespace collectives
