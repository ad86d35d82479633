// collectives_info watch: counters and operations of the processes that run here (src/monitoring/process_page.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace collectives {

/// The question, as typed.
struct MonitorOptions {
  bool once = false, json = false;
  int pid = 0;  ///< 0: all
  std::string interval = "1s";
};

/// The subcommand; `question` gets what is typed.
CLI::App& add_monitor(CLI::App& app, MonitorOptions& question);

/// Prints the answer, again and again unless `once` or `json`. Throws std::invalid_argument or Error in one line.
void answer(const MonitorOptions&);

}  // namespace collectives
