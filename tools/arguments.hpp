// The command line of collectives_info. The command `explain` prints the plan of a call, and `simulate` prints its
// simulated time. The command `watch` prints counters of running processes. Without a command, the program prints the
// backends, transports and other properties of this build and this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

/// Options of `collectives_info explain`, as the user has typed them.
struct ExplainOptions {
  std::string collective = "all_reduce", bytes = "1M", type = "f32", op = "sum", backend = "auto", wire;
  int ranks = 2, ranks_per_host = 0, cores_per_host = 0, domains = 1, cores_together = 0;
  Rank root = 0;
  bool deterministic = false, sizes = false, force = false;
};

/// Options of `collectives_info simulate`, as the user has typed them.
struct SimulateOptions {
  static constexpr int kMostRanks = 1 << 18;  ///< Maximum number of ranks on all hosts together.

  std::string collective = "all_reduce", bytes = "1M", type = "f32", op = "sum", backend = "auto";
  std::string link, latency, uplink, tuning, wire;
  int hosts = 2, ranks_per_host = 1, hosts_per_switch = 0;
  Rank root = 0;
  bool deterministic = false, all = false, sizes = false, force = false;
};

/// Options of `collectives_info watch`, as the user has typed them.
struct MonitorOptions {
  bool once = false, json = false;
  int pid = 0;  ///< id of the process to show; 0: all processes
  std::string interval = "1s";
};

enum class Command : std::uint8_t { none, explain, simulate, watch };

struct Arguments {
  Command command = Command::none;
  bool json = false;  ///< whether to print JSON; only without a command
  ExplainOptions explain;
  SimulateOptions simulate;
  MonitorOptions watch;
};

/// Parses the command line. If it contains --help, prints the help text and returns nothing. Throws
/// std::invalid_argument with a text of one line.
std::optional<Arguments> parse_arguments(int argc, char** argv);

}  // namespace collectives
