// The command line of gpu_bench, the benchmark on GPUs. This code does not use CUDA, so it can be tested on machines
// without CUDA.
#pragma once

#include <cstddef>
#include <optional>

namespace collectives::gpu_bench {

struct Sizes {
  std::size_t bytes = std::size_t{1} << 30;     // bytes of one f32 vector in casts and reductions
  std::size_t elements = std::size_t{1} << 28;  // number of elements from which top-k selects
  int repeats = 21;
};

/// Parses the command line. If it contains --help, prints the help text and returns nothing. Throws
/// std::invalid_argument.
std::optional<Sizes> parse_sizes(int argc, char** argv);

}  // namespace collectives::gpu_bench
