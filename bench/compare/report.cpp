// Main function of the report of the comparison with other libraries, the peers. It reads the times of all libraries,
// and writes table.txt, table.md, and a gnuplot program for each number of ranks. The last line of the output and the
// exit status tell whether our library is slower than a peer at any size of any collective.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

#include "analysis.hpp"
#include "base/safe_file.hpp"
#include "plot.hpp"
#include "tables.hpp"

namespace collectives::compare {
namespace {

constexpr int kFewestRounds = 7;  // minimum number of rounds, because fewer give useless confidence intervals

struct Arguments {
  std::filesystem::path samples, header, output;
  std::optional<double> fail_below;
};

/// Returns the number of rounds in which our library was timed, in the cell with the fewest. A round times each library
/// once. A peer may miss rounds, because its other rounds suffice.
std::size_t fewest_rounds(const Samples& samples) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const auto& [cell, contenders] : samples.cells) {
    for (const auto& [name, series] : contenders) {
      if (series.role == Role::ours) fewest = std::min(fewest, series.rounds.size());
    }
  }
  return fewest;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void write(const std::filesystem::path& file, const std::string& text) {
  FileReplacement replacement(file.string());
  if (!replacement.write(text) || !replacement.commit(/*to_disk=*/false))
    throw std::runtime_error(file.string() + ": cannot be written: " + file_error_text(errno));
}

/// Result of the comparison, as text and exit status.
struct Judgement {
  int status;
  std::string words;
};

Judgement conclude(const Samples& samples, const std::vector<Line>& lines, const std::optional<double>& fail_below) {
  if (samples.wrong_of_ours != 0) return {1, fmt::format("WRONG: {} elements of our results", samples.wrong_of_ours)};
  const double least = fail_below.value_or(1);
  const std::size_t failed = failures(lines, least);
  const std::string words =
      fmt::format("{} cells slower than {} or missing", failed == 0 ? "no" : std::to_string(failed), least);
  return {fail_below && failed != 0 ? 1 : 0, words};
}

int report(const Arguments& arguments) {
  std::ifstream stream(arguments.samples);
  if (!stream) throw std::runtime_error(arguments.samples.string() + ": cannot be read");
  const Samples samples = read_samples(stream);
  const std::vector<Line> lines = judge(samples);
  if (lines.empty()) throw std::runtime_error(arguments.samples.string() + ": no times of ours");
  const std::size_t rounds = fewest_rounds(samples);
  if (arguments.fail_below && rounds < kFewestRounds) {
    throw std::runtime_error(fmt::format("{} rounds: --fail-below needs at least {}", rounds, kFewestRounds));
  }
  const Judgement judgement = conclude(samples, lines, arguments.fail_below);

  std::vector<std::string> head = lines_of(arguments.header);
  head.push_back(
      "a barrier before each call (none where back to back), slowest rank, median over calls, median over rounds");
  head.push_back("ratio: best peer / ours, above 1 ours is faster; slower: its whole 95 % interval lies below 1");
  head.push_back("  (below 0.9 for all_gather from 8 KiB to 16 MiB); roofline: the bound's time / ours");
  for (const std::string& note : samples.notes) head.push_back("left out: " + note);

  std::string text, markdown = "```\n";
  for (const std::string& line : head) {
    text += "# " + line + "\n";
    markdown += line + "\n";
  }
  markdown += "```\n";
  for (const Table& table : tables(lines)) {
    text += "\n" + as_text(table);
    markdown += "\n" + as_markdown(table);
  }
  text += "\n" + judgement.words + "\n";
  markdown += "\n" + judgement.words + "\n";
  std::filesystem::create_directories(arguments.output);
  write(arguments.output / "table.txt", text);
  write(arguments.output / "table.md", markdown);

  std::set<int> ranks;
  for (const auto& [cell, contenders] : samples.cells) ranks.insert(cell.ranks);
  for (const int each : ranks) {
    const std::filesystem::path plot = arguments.output / fmt::format("plot_{}_ranks.svg", each);
    write(std::filesystem::path(plot).replace_extension(".gnuplot"), plot_program(samples, lines, each, plot.string()));
  }
  std::cout << text;
  return judgement.status;
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) {
  using namespace collectives::compare;
  CLI::App app("Writes the report of scripts/compare.sh.");
  Arguments arguments;
  app.add_option("--samples", arguments.samples, "JSON lines, as the contenders wrote them")->required();
  app.add_option("--header", arguments.header, "Lines about machine and versions to begin with");
  app.add_option("--output", arguments.output, "Folder for the report")->required();
  app.add_option("--fail-below", arguments.fail_below, "Exit with 1 if a cell counts as slower than this ratio");
  try {
    app.parse(argc, argv);
    return report(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare_report: {}\n", error.what());
    return 2;
  }
}
