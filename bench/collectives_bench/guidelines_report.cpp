// Implementation of the report of the performance guidelines. A row of the table joins the sizes of one guideline and
// collective.
#include "collectives_bench/guidelines_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <span>
#include <tuple>

#include "base/json.hpp"
#include "base/safe_file.hpp"
#include "base/text.hpp"

namespace collectives::bench {

namespace {

/// Returns the collective of a cell in words: "all_reduce by ring".
std::string subject_of(const GuidelineCell& cell) {
  const std::string name(to_string(cell.what.operation));
  return cell.what.backend == "auto" ? name : fmt::format("{} by {}", name, cell.what.backend);
}

/// Returns whether both cells belong to one row of the table.
bool are_of_one_row(const GuidelineCell& one, const GuidelineCell& other) {
  return one.guideline == other.guideline && one.what.operation == other.what.operation &&
         one.what.backend == other.what.backend && one.what.type == other.what.type && one.what.op == other.what.op;
}

std::string interval_text(const Interval& interval) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", interval.value, interval.low, interval.high);
}

void print_plans(const char* side, const std::string& calls, const std::vector<std::string>& plans) {
  print("#   {} side: {}\n", side, calls);
  for (const std::string& plan : plans)
    for (std::size_t begin = 0; begin < plan.size();) {
      const std::size_t end = std::min(plan.find('\n', begin), plan.size());
      print("#     {}\n", plan.substr(begin, end - begin));
      begin = end + 1;
    }
}

void print_violation(const CellResult& result, int ranks) {
  const GuidelineCell& cell = *result.cell;
  const Comparison& middle = middle_of(result.runs);
  print("#\nVIOLATED {}: {}, {} {}, {} B: {}\n", cell.guideline->name, subject_of(cell), to_string(cell.what.type),
        op_name(cell.what), cell.bytes, cell.guideline->rule);
  print("#   ratio {}: {} us against {} us; above {} in {} of {} runs\n", interval_text(middle.ratio),
        number(middle.left), number(middle.right), kLargestRatio,
        std::ranges::count_if(result.runs, &Comparison::exceeds), result.runs.size());
  print_plans("left", text_of(cell.left, ranks), result.left_plans);
  print_plans("right", text_of(cell.right, ranks), result.right_plans);
}

/// Prints a row: the cells of one guideline and collective, of which at least one was measured.
void print_row(std::span<const CellResult> row) {
  const GuidelineCell& first = *row.front().cell;
  const CellResult* worst = nullptr;
  std::size_t measured = 0;
  std::vector<std::string> violated;
  for (const CellResult& result : row) {
    if (result.runs.empty()) continue;
    ++measured;
    if (worst == nullptr || middle_of(result.runs).ratio.value > middle_of(worst->runs).ratio.value) worst = &result;
    if (result.verdict() == GuidelineVerdict::violated) violated.push_back(bytes_text(result.cell->bytes));
  }
  print(" {:<16} {:<36} {:>7} {:>14} {:>5} {:>8}  {:<20} {:>10}  {}\n", first.guideline->name, subject_of(first),
        to_string(first.what.type), op_name(first.what), measured, row.size() - measured,
        interval_text(middle_of(worst->runs).ratio), bytes_text(worst->cell->bytes),
        violated.empty() ? "holds" : fmt::format("VIOLATED at {}", fmt::join(violated, ", ")));
}

void print_table(std::span<const CellResult> results) {
  print("#\n#{:<16} {:<36} {:>7} {:>14} {:>5} {:>8}  {:<20} {:>10}  {}\n", "guideline", "collective", "type", "redop",
        "sizes", "left out", "worst ratio, 95 %", "at", "verdict");
  for (std::size_t begin = 0, end = 0; begin < results.size(); begin = end) {
    while (end < results.size() && are_of_one_row(*results[begin].cell, *results[end].cell)) ++end;
    const auto row = results.subspan(begin, end - begin);
    if (std::ranges::any_of(row, [](const CellResult& result) { return !result.runs.empty(); })) print_row(row);
  }
}

/// Prints the cells that were not measured, with numbers of sizes. The JSON file has the whole reasons.
void print_left_out(std::span<const CellResult> results) {
  struct Omission {
    std::string_view guideline, backend;
    std::string reason;  // its class: the text before the colon
    auto operator<=>(const Omission&) const = default;
  };
  std::map<Omission, std::map<std::string_view, std::size_t>> sizes_of;  // and by collective
  for (const CellResult& result : results) {
    if (result.left_out.empty()) continue;
    const GuidelineCell& cell = *result.cell;
    const std::string reason = result.left_out.substr(0, result.left_out.find(':'));
    ++sizes_of[{cell.guideline->name, cell.what.backend, reason}][to_string(cell.what.operation)];
  }
  // Backends that left out equal cells share a line.
  std::map<std::tuple<std::string_view, std::string, std::string>, std::vector<std::string_view>> backends_of;
  for (const auto& [omission, sizes_by_collective] : sizes_of) {
    std::string collectives;
    for (const auto& [collective, sizes] : sizes_by_collective)
      collectives += fmt::format("{}{} ({})", collectives.empty() ? "" : ", ", collective, sizes);
    backends_of[{omission.guideline, omission.reason, collectives}].push_back(omission.backend);
  }
  for (const auto& [omission, backends] : backends_of) {
    const auto& [guideline, reason, collectives] = omission;
    const std::string names = fmt::format("{}", fmt::join(backends, ", "));
    print("# left out: {}{}: {}: {}\n", guideline, names == "auto" ? "" : " " + names, reason, collectives);
  }
}

nlohmann::ordered_json to_json(const CellResult& result, int ranks) {
  const GuidelineCell& cell = *result.cell;
  nlohmann::ordered_json line = {{"kind", "guideline"},
                                 {"guideline", cell.guideline->name},
                                 {"rule", cell.guideline->rule},
                                 {"collective", to_string(cell.what.operation)},
                                 {"backend", cell.what.backend},
                                 {"type", to_string(cell.what.type)},
                                 {"op", op_name(cell.what)},
                                 {"size_bytes", cell.bytes},
                                 {"left", text_of(cell.left, ranks)},
                                 {"right", text_of(cell.right, ranks)},
                                 {"verdict", to_string(result.verdict())}};
  if (result.runs.empty()) {
    line["reason"] = result.left_out;
    return line;
  }
  const Comparison& middle = middle_of(result.runs);
  line["ratio"] = middle.ratio.value;
  line["low"] = middle.ratio.low;
  line["high"] = middle.ratio.high;
  line["left_us"] = middle.left;
  line["right_us"] = middle.right;
  auto& runs = line["runs"] = nlohmann::ordered_json::array();
  for (const Comparison& run : result.runs)
    runs.push_back({{"ratio", run.ratio.value},
                    {"low", run.ratio.low},
                    {"high", run.ratio.high},
                    {"left_us", run.left},
                    {"right_us", run.right}});
  if (result.verdict() == GuidelineVerdict::violated) {
    line["left_plans"] = result.left_plans;
    line["right_plans"] = result.right_plans;
  }
  return line;
}

}  // namespace

GuidelineReport::GuidelineReport(const Settings& settings)
    : settings_(settings), json_(open_report("--json", settings.json_file)), terminal_(isatty(STDERR_FILENO) == 1) {}

GuidelineReport::~GuidelineReport() = default;

void GuidelineReport::begin(const Setting& setting, std::size_t cells, double seconds_per_size) {
  print("{}", bench::text_of(setting));
  print("# {} comparisons of two sides, {:.3g} s each; those above {} are measured again\n", cells, seconds_per_size,
        kLargestRatio);
  print("# a barrier of ours before each side: time is the median of the slowest rank; the clock takes {:.0f} ns\n",
        setting.clock_us * 1e3);
  std::fflush(stdout);
  if (json_) *json_ << json_text(bench::to_json(setting)) << '\n' << std::flush;
}

void GuidelineReport::progress(const GuidelineCell& next, std::size_t run, std::size_t done, std::size_t all) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[Krun {}: {}/{} {} {}, {} B", run, done + 1, all, next.guideline->name, subject_of(next),
             next.bytes);
  std::fflush(stderr);
}

void GuidelineReport::clear_progress() {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void GuidelineReport::note(const std::string& text) {
  clear_progress();
  print("# {}\n", text);
  std::fflush(stdout);
}

void GuidelineReport::end(const std::vector<CellResult>& results, int ranks) {
  clear_progress();
  const auto count = [&](GuidelineVerdict verdict) {
    return std::ranges::count_if(results, [&](const CellResult& result) { return result.verdict() == verdict; });
  };
  for (const CellResult& result : results)
    if (result.verdict() == GuidelineVerdict::violated) print_violation(result, ranks);
  print_table(results);
  print_left_out(results);
  const auto violated = count(GuidelineVerdict::violated), holds = count(GuidelineVerdict::holds);
  const auto left_out = count(GuidelineVerdict::left_out);
  print("# {} comparisons: {} hold, {} violated, {} left out\n", results.size(), holds, violated, left_out);
  std::fflush(stdout);
  if (!json_) return;
  for (const CellResult& result : results) *json_ << json_text(to_json(result, ranks)) << '\n';
  const nlohmann::ordered_json summary = {
      {"kind", "summary"}, {"holds", holds}, {"violated", violated}, {"left_out", left_out}};
  *json_ << json_text(summary) << '\n';
  close_report("--json", settings_.json_file, *json_);
}

}  // namespace collectives::bench
