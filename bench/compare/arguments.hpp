// The command line of a program that times one library (the contender) for the comparison of libraries. harness.hpp
// explains how it times.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness.hpp"
#include "noise.hpp"

namespace collectives::compare {

struct Arguments {
  std::string sync_file, output, contender, role, variant;
  int round = 0;
  std::vector<Operation> operations;
  bool out_of_place = true, in_place = false;
  std::size_t min_bytes = 8, max_bytes = 64U << 20, factor = 4, rotate = 0;
  std::vector<std::size_t> back_to_back;  ///< sizes in bytes of all-reduces that are timed in a loop, without barriers
                                          ///< between the calls
  double seconds_per_cell = 0.05, patience = 2;
  NoiseFilter::Limits noise;
  std::vector<std::string> backends{""};  ///< backends of the contender to time; "" is its default
  bool oversubscribed = false;
};

/// Parses the command line. Returns nothing if it contains --help. Throws BadArguments.
std::optional<Arguments> parse_arguments(int argc, char** argv);

}  // namespace collectives::compare
