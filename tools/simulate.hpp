// Command `collectives_info simulate`: prints the time of a call on a machine that need not exist
// (tools/simulation.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// Options of `collectives_info simulate`, as the user has typed them.
struct SimulateOptions {
  std::string collective = "all_reduce", bytes = "1M", type = "f32", op = "sum", backend = "auto";
  std::string link, latency, uplink, tuning, wire;
  int hosts = 2, ranks_per_host = 1, hosts_per_switch = 0;
  Rank root = 0;
  bool deterministic = false, all = false, sizes = false, force = false;
};

/// Adds the subcommand `simulate` to `app`. Parsing the command line fills `question`.
CLI::App& add_simulate(CLI::App& app, SimulateOptions& question);

/// Simulates the call and prints the result. Throws std::invalid_argument or Error with a text of one line.
void answer(const SimulateOptions&);

}  // namespace collectives
