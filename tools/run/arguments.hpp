// The command line of collectives_run, which starts the ranks of a program on this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace collectives::run {

constexpr int kUsageError = 2;  // exit status for invalid arguments

struct Arguments {
  int ranks = 0;
  bool prefix = false;
  // seconds from the first failure, SIGINT or SIGTERM until the launcher kills the ranks that still run
  double grace = 2;
  std::optional<double> timeout;  // seconds from the start after which the launcher ends all ranks; empty: no limit
  std::vector<std::string> command;
};

/// Parses the command line. Ends the program after --help, and with kUsageError after an invalid argument.
Arguments parse(int argc, char** argv);

}  // namespace collectives::run
