// Command line of the programs that time one library each for the comparison of libraries. A contender is a library
// that is timed. CLI11 parses the line.
#include "arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <ranges>

#include "base/bytes.hpp"

namespace collectives::compare {
namespace {

std::size_t bytes_from(const std::string& option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) throw BadArguments(fmt::format("{} {}: not a number of bytes, such as 8 or 64M", option, text));
  return *bytes;
}

/// Values of options as text, which convert() checks after CLI11 has read the line.
struct Texts {
  std::vector<std::string> operations, back_to_back, backends;
  double stolen = 100, patience = 60;
  std::string min_bytes = "8", max_bytes = "64M", rotate = "0", in_place = "no";
};

void add_options(CLI::App& app, Arguments& arguments, Texts& texts) {
  app.add_option("--sync-file", arguments.sync_file, "An empty file that all ranks map to synchronize")->required();
  app.add_option("--output", arguments.output, "Append one JSON line per cell to this file")->required();
  app.add_option("--contender", arguments.contender, "Its name in the results")->required();
  app.add_option("--role", arguments.role, "ours, peer, best-setting or bound")->required();
  app.add_option("--variant", arguments.variant, "One of several kinds of use of the same library");
  app.add_option("--round", arguments.round, "Number of this round in the results");
  app.add_option("--collectives", texts.operations, "Which")->delimiter(',');
  app.add_option("--in-place", texts.in_place, "no, yes or both; a broadcast is always in place, a message never")
      ->check(CLI::IsMember({"no", "yes", "both"}));
  app.add_option("--min-bytes", texts.min_bytes, "Smallest vector");
  app.add_option("--max-bytes", texts.max_bytes, "Largest vector");
  app.add_option("--factor", arguments.factor, "From one size to the next")->check(CLI::Range(2, 1 << 20));
  app.add_option("--rotate", texts.rotate, "Take buffers in turn from this many bytes");
  app.add_option("--back-to-back", texts.back_to_back, "Also time loops of all-reduces of these sizes")->delimiter(',');
  app.add_option("--seconds-per-cell", arguments.seconds_per_cell, "Timed calls of one cell take about this long");
  app.add_option("--patience", arguments.patience, "Leave out what needs more seconds for its fewest calls");
  app.add_option("--near", arguments.noise.barrier_ns, "Time while a barrier takes at most this many nanoseconds");
  app.add_option("--stolen", texts.stolen, "Time while the host takes away at most this percentage of the cores' time")
      ->check(CLI::Range(0., 100.));
  app.add_option("--quiet-patience", texts.patience, "Seconds to wait for both, in all, for each backend");
  app.add_option("--backends", texts.backends,
                 "Time these of the contender's backends too, in turns with it as it comes")
      ->delimiter(',');
  app.add_flag("--oversubscribed", arguments.oversubscribed, "More ranks than cores: waiting gives the core away");
}

/// Checks and converts `texts`. Throws BadArguments.
void convert(const Texts& texts, Arguments& arguments) {
  arguments.backends.insert(arguments.backends.end(), texts.backends.begin(), texts.backends.end());
  if (!(texts.stolen >= 0)) throw BadArguments("--stolen: not a percentage");  // CLI11 does not refuse NaN
  arguments.noise.stolen = texts.stolen / 100;
  arguments.noise.patience =
      std::chrono::duration<double>(texts.patience * static_cast<double>(arguments.backends.size()));
  arguments.min_bytes = bytes_from("--min-bytes", texts.min_bytes);
  arguments.max_bytes = bytes_from("--max-bytes", texts.max_bytes);
  arguments.rotate = bytes_from("--rotate", texts.rotate);
  if (arguments.min_bytes < sizeof(float) || arguments.min_bytes > arguments.max_bytes) {
    throw BadArguments(
        fmt::format("--min-bytes {} --max-bytes {}: no sizes from 4 bytes up", texts.min_bytes, texts.max_bytes));
  }
  for (const std::string& text : texts.back_to_back)
    arguments.back_to_back.push_back(bytes_from("--back-to-back", text));
  arguments.out_of_place = texts.in_place != "yes";
  arguments.in_place = texts.in_place != "no";
  for (const std::string& name : texts.operations) {
    const auto* const found = std::ranges::find(kTimed, name, [](Operation one) { return to_string(one); });
    if (found == std::end(kTimed)) {
      const auto names = kTimed | std::views::transform([](Operation one) { return to_string(one); });
      throw BadArguments(fmt::format("--collectives {}: known are {}", name, fmt::join(names, ", ")));
    }
    arguments.operations.push_back(*found);
  }
  if (texts.operations.empty()) arguments.operations.assign(std::begin(kUsual), std::end(kUsual));
}

}  // namespace

std::optional<Arguments> parse_arguments(int argc, char** argv) {
  Arguments arguments;
  Texts texts;
  CLI::App app("One contender of the comparison, one round. Started by scripts/compare.sh under mpirun.");
  add_options(app, arguments, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return std::nullopt;
    throw BadArguments(error.what());
  }
  convert(texts, arguments);
  return arguments;
}

}  // namespace collectives::compare
