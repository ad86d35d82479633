// Functions that parse the command line of collectives_info, a program that shows what the library would do on a
// machine. They use the library CLI11.
#include "tools/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan.hpp"
#include "tools/named.hpp"

namespace collectives {
namespace {

constexpr int kMostRanksOfPlan = 1 << 20;  // maximum number of ranks of the command `explain`

/// Adds the subcommand `explain`, which prints a call's plan. CLI11 stores the options of the user in `question`.
CLI::App& add_explain(CLI::App& app, ExplainOptions& question) {
  CLI::App& explaining =
      *app.add_subcommand("explain", "What a collective would do on a machine that need not be here.");
  explaining.add_option("collective", question.collective, list_of(kCollectives) + " [all_reduce]");
  explaining.add_option("--bytes", question.bytes, "of the whole vector [1M]");
  explaining.add_option("--ranks", question.ranks, "[2]")->check(CLI::Range(1, kMostRanksOfPlan));
  explaining.add_option("--ranks-per-host", question.ranks_per_host, "[all]")->check(CLI::Range(1, kMostRanksOfPlan));
  explaining.add_option("--cores-per-host", question.cores_per_host, "[unknown]")
      ->check(CLI::Range(1, kMostRanksOfPlan));
  explaining
      .add_option("--cores-together", question.cores_together,
                  "Of the one machine that all hosts are containers or namespaces of [each is a machine]")
      ->check(CLI::Range(1, kMostRanksOfPlan));
  explaining.add_option("--domains", question.domains, "Sockets or caches of the one host [1]")
      ->check(CLI::Range(1, kMostRanksOfPlan));
  explaining.add_option("--type", question.type, list_of(kDataTypes) + " [f32]");
  explaining.add_option("--op", question.op, list_of(kOps) + " [sum]");
  explaining.add_option("--backend", question.backend, fmt::format("{} [auto]", fmt::join(backend_names(), ", ")));
  explaining.add_option("--root", question.root, "of broadcast, reduce, gather and scatter [0]")
      ->check(CLI::Range(0, kMostRanksOfPlan - 1));
  explaining.add_option("--wire", question.wire, "what f32 values travel as: " + list_of(codecs()) + " [as they are]");
  explaining.add_flag("--force", question.force, "so also where that is slower");
  explaining.add_flag("--deterministic", question.deterministic, "the same bits whatever the backend");
  explaining.add_flag("--sizes", question.sizes, "a table from 8 B to 1 GiB");
  return explaining;
}

/// Adds the subcommand `simulate`, which prints a call's simulated time. CLI11 stores the options of the user in
/// `question`.
CLI::App& add_simulate(CLI::App& app, SimulateOptions& question) {
  CLI::App& simulating =
      *app.add_subcommand("simulate", "How long a collective would take on a machine that need not be here.");
  simulating.add_option("collective", question.collective, list_of(kCollectives) + " [all_reduce]");
  simulating.add_option("--bytes", question.bytes, "of the whole vector [1M]");
  simulating.add_option("--hosts", question.hosts, "[2]")->check(CLI::Range(1, SimulateOptions::kMostRanks));
  simulating.add_option("--ranks-per-host", question.ranks_per_host, "[1]")
      ->check(CLI::Range(1, SimulateOptions::kMostRanks));
  simulating.add_option("--link", question.link,
                        "of each host, each way: 100gbit, 12.5GB [wire_us_per_byte of the tuning]");
  simulating.add_option("--latency", question.latency, "from host to host: 5us, 800ns [wire_us of the tuning]");
  simulating.add_option("--uplink", question.uplink, "of each switch, each way: 400gbit [never in the way]");
  simulating.add_option("--hosts-per-switch", question.hosts_per_switch, "[all]")
      ->check(CLI::Range(1, SimulateOptions::kMostRanks));
  simulating.add_option("--type", question.type, list_of(kDataTypes) + " [f32]");
  simulating.add_option("--op", question.op, list_of(kOps) + " [sum]");
  simulating.add_option("--backend", question.backend, fmt::format("{} [auto]", fmt::join(backend_names(), ", ")));
  simulating.add_option("--root", question.root, "of broadcast, reduce, gather and scatter [0]")
      ->check(CLI::Range(0, SimulateOptions::kMostRanks - 1));
  simulating.add_option("--tuning", question.tuning, "a file with numbers [COLLECTIVES_TUNING]");
  simulating.add_option("--wire", question.wire, "what f32 values travel as: " + list_of(codecs()) + " [as they are]");
  simulating.add_flag("--force", question.force, "so also where that is slower");
  simulating.add_flag("--deterministic", question.deterministic, "the same bits whatever the backend");
  simulating.add_flag("--all", question.all, "the runners-up as well");
  simulating.add_flag("--sizes", question.sizes, "a table from 8 B to 1 GiB");
  return simulating;
}

/// Adds the subcommand `watch`, which prints counters of running processes. CLI11 stores the options of the user in
/// `question`.
CLI::App& add_monitor(CLI::App& app, MonitorOptions& question) {
  CLI::App& watching = *app.add_subcommand("watch", "Counters and operations of the processes that run here.");
  watching.add_flag("--once", question.once, "all there is so far, and no more");
  watching.add_flag("--json", question.json, "the same as JSON");
  watching.add_option("--pid", question.pid, "of this process only [all]")->check(CLI::Range(1, 1 << 30));
  watching.add_option("--interval", question.interval, "between two looks: 500ms, 2s [1s]");
  return watching;
}

/// Returns an error about the command line as one line. If an argument is unknown, the line also lists the valid
/// arguments. `commands` is the text with the valid subcommands.
std::string error_line(const CLI::ParseError& error, const CLI::App& asked, std::string_view commands) {
  std::string line = error.what();
  std::ranges::replace(line, '\n', ' ');
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return line;
  std::vector<std::string> flags;
  for (const CLI::Option* option : asked.get_options()) {
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  }
  return line + fmt::format("; valid: {}{}", commands, fmt::join(flags, ", "));
}

}  // namespace

std::optional<Arguments> parse_arguments(int argc, char** argv) {
  CLI::App app("What this build and this machine can do.", "collectives_info");
  Arguments arguments;
  app.add_flag("--json", arguments.json, "as JSON");
  const CLI::App& explaining = add_explain(app, arguments.explain);
  const CLI::App& simulating = add_simulate(app, arguments.simulate);
  const CLI::App& monitoring = add_monitor(app, arguments.watch);
  const auto asked = [&]() -> const CLI::App& {
    return explaining.parsed() ? explaining : simulating.parsed() ? simulating : monitoring.parsed() ? monitoring : app;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", asked().help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error_line(error, asked(), &asked() != &app ? "" : "explain, simulate, watch, "));
  }
  arguments.command = explaining.parsed()   ? Command::explain
                      : simulating.parsed() ? Command::simulate
                      : monitoring.parsed() ? Command::watch
                                            : Command::none;
  return arguments;
}

}  // namespace collectives
