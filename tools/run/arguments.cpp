// Function that parses the command line of collectives_run. That program starts ranks on this host. The function uses
// the library CLI11.
#include "tools/run/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

#include "tools/run/output.hpp"

namespace collectives::run {

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Runs N ranks of a program on this host:\ncollectives_run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]",
               "collectives_run");
  const CLI::AsNumberWithUnit duration(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}},
                                       CLI::AsNumberWithUnit::CASE_SENSITIVE, "DURATION");
  app.add_option("-n", arguments.ranks, "ranks to start")->required()->check(CLI::Range(1, 4096));
  app.add_flag("--prefix,--tag-output", arguments.prefix, "put [rank] in front of every line of output");
  app.add_option("--grace", arguments.grace,
                 "what ranks have to end after a rank has failed, or after SIGINT or SIGTERM (2s, 500ms)")
      ->transform(duration)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout, "end everything after so long (30s, 5min)")
      ->transform(duration)
      ->check(CLI::PositiveNumber);
  app.prefix_command();
  try {
    app.parse(argc, argv);
    arguments.command = app.remaining();
    if (!arguments.command.empty() && arguments.command[0] == "--") {
      arguments.command.erase(arguments.command.begin());
    } else if (!arguments.command.empty() && arguments.command[0].starts_with('-')) {
      throw CLI::ExtrasError({arguments.command[0]});
    }
    if (arguments.command.empty()) throw CLI::RequiredError("PROGRAM");
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    say(fmt::format("{} (collectives_run -n N [--prefix] [--grace DURATION] [--timeout DURATION] [--] PROGRAM ...)",
                    error.what()));
    std::exit(kUsageError);
  }
  return arguments;
}

}  // namespace collectives::run
