// collectives_info simulate: how long a call would take on a machine that is not here (tools/simulation.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// The question, as typed.
struct SimulateOptions {
  std::string collective = "all_reduce", bytes = "1M", type = "f32", op = "sum", backend = "auto";
  std::string link, latency, uplink, tuning, wire;
  int hosts = 2, ranks_per_host = 1, hosts_per_switch = 0;
  Rank root = 0;
  bool deterministic = false, all = false, sizes = false, force = false;
};

/// The subcommand; `question` gets what is typed.
CLI::App& add_simulate(CLI::App& app, SimulateOptions& question);

/// Prints the answer. Throws std::invalid_argument or Error in one line.
void answer(const SimulateOptions&);

}  // namespace collectives
