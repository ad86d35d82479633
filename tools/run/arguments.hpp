// The command line of collectives_run.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace collectives::run {

constexpr int kUsageError = 2;  // exit status

struct Arguments {
  int ranks = 0;
  bool prefix = false;
  double grace = 2;               // seconds
  std::optional<double> timeout;  // seconds
  std::vector<std::string> command;
};

/// Parses the command line. Ends the program after --help, and with kUsageError after an invalid argument.
Arguments parse(int argc, char** argv);

}  // namespace collectives::run
