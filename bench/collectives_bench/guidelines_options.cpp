// Implementation of the command line of the sub-command `guidelines`. The library CLI11 splits the line into options.
#include "collectives_bench/guidelines_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ranges>
#include <span>

#include "collectives/plan.hpp"
#include "collectives_bench/guidelines.hpp"
#include "collectives_bench/option_values.hpp"

namespace collectives::bench {

namespace {

/// Values of the options as text, before they are checked. --help shows the defaults.
struct GuidelineTexts {
  std::string collectives = "all", guidelines = "all", backends = "all", types = "f32", ops = "sum";
  std::string min_bytes = "0", max_bytes = "16M", factor = "2", root = "0";
  std::string iterations = "0", warmup = "2", seconds_per_size = "0", bootstrap = "auto";
};

std::vector<const Guideline*> all_guidelines() {
  std::vector<const Guideline*> all;
  for (const Guideline& guideline : guidelines()) all.push_back(&guideline);
  return all;
}

std::string description() {
  std::string text =
      "Compares the times of the library's calls with one another. A guideline says that a call does not take longer "
      "than\nother calls that do the same:\n\n";
  for (const Guideline& guideline : guidelines()) text += fmt::format("  {:<17} {}\n", guideline.name, guideline.rule);
  text +=
      "\nn is the length of the whole vector. A violation is a ratio of the two times whose 95 % interval lies wholly "
      "above 1.05\nin two runs of three. Wires are not compared, because a process has one wire: run once for each "
      "COLLECTIVES_WIRE.\n"
      "Exit status 0: no violation. 1: a violation, or a failure. 2: bad arguments. 3: the machine is too busy to "
      "judge.";
  return text;
}

void add_options(CLI::App& app, GuidelineTexts& texts, Settings& settings) {
  app.add_option("collective", texts.collectives,
                 fmt::format("LIST of {}, or all: of the left sides [all]", names_of(guideline_operations())));
  app.add_option("--guidelines", texts.guidelines, "LIST of the guidelines above, or all [all]");
  app.add_option("--backend", texts.backends,
                 fmt::format("LIST of {}, or all: compared with auto [all]",
                             fmt::join(backend_names() | std::views::drop(1), ", ")));
  app.add_option("--min-bytes", texts.min_bytes, "smallest vector; after 0 comes 8 [0]");
  app.add_option("--max-bytes", texts.max_bytes, "largest vector [16M]");
  app.add_option("--factor", texts.factor, "from one size to the next [2]");
  app.add_option("--type", texts.types, fmt::format("LIST of {}, or all [f32]", names_of(verified_types())));
  app.add_option("--op", texts.ops, fmt::format("LIST of {}, or all [sum]", names_of(verified_ops())));
  app.add_option("--root", texts.root, "of calls with a root [0]");
  app.add_option("--iterations", texts.iterations, "timed calls of each side; 0: as many as fit the time [0]");
  app.add_option("--warmup", texts.warmup, "untimed calls before them, at least 1 [2]");
  app.add_option("--seconds-per-size", texts.seconds_per_size,
                 "time for both sides; both are timed at least 15 times [0.05, three times as much in runs 2 and 3]");
  app.add_flag("--judge-busy", settings.guidelines->judge_busy, "judge also if other programs use the cores");
  app.add_option("--json", settings.json_file, "write the results there, one JSON object for each guideline and size");
  app.add_option("--bootstrap", texts.bootstrap,
                 "how ranks connect: auto, mpi, environment, or threads:N (no launcher needed) [auto]");
}

/// Reads the lists. The backend "auto" is left out, because it would be compared with itself. So is "nccl" in the list
/// of all, because it takes buffers of GPUs only.
void choose_guideline_lists(const GuidelineTexts& texts, Settings& settings) {
  const std::vector<const Guideline*> known = all_guidelines();
  settings.operations = choose<Operation>("collective", texts.collectives, guideline_operations());
  settings.guidelines->chosen = choose<const Guideline*>("--guidelines", texts.guidelines, known);
  settings.types = choose<DataType>("--type", texts.types, verified_types());
  settings.ops = choose<ReduceOp::Kind>("--op", texts.ops, verified_ops());
  settings.backends = choose_backends(texts.backends);
  std::erase(settings.backends, "auto");
  if (std::ranges::count(split_list(texts.backends), "all") > 0) std::erase(settings.backends, "nccl");
}

void read_guideline_numbers(const GuidelineTexts& texts, Settings& settings) {
  settings.min_bytes = size_argument("--min-bytes", texts.min_bytes);
  settings.max_bytes = size_argument("--max-bytes", texts.max_bytes);
  settings.factor = number_argument<std::size_t>("--factor", texts.factor, 2, 1U << 20);
  settings.iterations = number_argument<std::size_t>("--iterations", texts.iterations, 0, kMostCalls);
  settings.warmup = number_argument<std::size_t>("--warmup", texts.warmup, 1, kMostCalls);
  settings.seconds_per_size = number_argument<double>("--seconds-per-size", texts.seconds_per_size, 0, kMostSeconds);
  settings.root = number_argument<Rank>("--root", texts.root, 0, kMostRanks - 1);
}

}  // namespace

Settings parse_guideline_settings(int argc, const char* const* argv) {
  Settings settings;
  settings.guidelines.emplace();
  GuidelineTexts texts;
  CLI::App app(description(), "collectives_bench guidelines");
  add_options(app, texts, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpWanted(app.help());
  } catch (const CLI::ParseError& error) {
    throw BadArguments(complaint(app, error));
  }
  // The order of these checks decides which of several wrong options is reported.
  choose_guideline_lists(texts, settings);
  read_guideline_numbers(texts, settings);
  choose_bootstrap(texts.bootstrap, settings);
  check_range(texts.min_bytes, texts.max_bytes, settings);
  return settings;
}

}  // namespace collectives::bench
