// collectives_info watch: counters and operations of the processes that run here (src/monitoring/process_page.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace collectives {

/// The question, as typed.
struct WatchQuestion {
  bool once = false, json = false;
  int pid = 0;  ///< 0: all
  std::string interval = "1s";
};

/// The subcommand; `question` gets what is typed.
CLI::App& add_watch(CLI::App& app, WatchQuestion& question);

/// Prints the answer, again and again unless `once` or `json`. Throws std::invalid_argument or Error in one line.
void answer(const WatchQuestion&);

}  // namespace collectives
