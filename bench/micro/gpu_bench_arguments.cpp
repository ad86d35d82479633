// Command line of gpu_bench, the benchmark on GPUs. The library CLI11 parses it.
#include "gpu_bench_arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <stdexcept>

namespace collectives::gpu_bench {

std::optional<Sizes> parse_sizes(int argc, char** argv) {
  Sizes sizes;
  CLI::App app("Times the kernels of a GPU against its copy bandwidth.", "gpu_bench");
  app.add_option("--bytes", sizes.bytes, "Of a vector of casts and reductions")
      ->check(CLI::Range(std::size_t{1} << 12, std::size_t{1} << 36))
      ->capture_default_str();
  app.add_option("--elements", sizes.elements, "Of a gradient of which some are chosen")
      ->check(CLI::Range(std::size_t{1000}, (std::size_t{1} << 32) - 1))
      ->capture_default_str();
  app.add_option("--repeats", sizes.repeats, "Of which a figure is the median")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
  return sizes;
}

}  // namespace collectives::gpu_bench
