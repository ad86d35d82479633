// Implementation of the tables of the comparison with other libraries. This file makes the tables, and writes them as
// text and as Markdown.
#include "tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace collectives::compare {

namespace {

constexpr std::size_t kHugeBytes = 16 << 20;
// Sizes in bytes between which the tables show no bound. roofline.cpp measures the bound with several variants. Up to
// the first size, its variant `lines` is the bound. From the second size on, the fastest other variant is the bound.
// Below the second size, these variants are no bound, because their barrier takes longer than their loads and stores.
constexpr std::size_t kMostOfLines = 4 << 10, kLeastOfOthers = 64 << 10;

std::string time_text(double microseconds) {
  return fmt::format("{:.{}f}", microseconds, microseconds < 100 ? 2 : microseconds < 1000 ? 1 : 0);
}

std::string fraction_text(std::optional<double> fraction) { return fraction ? fmt::format("{:.2f}", *fraction) : "-"; }

/// Appends four fields to a row: time and name of the best peer, ratio, and interval.
void append(std::vector<std::string>& row, const std::optional<Ratio>& ratio) {
  if (!ratio) {
    row.insert(row.end(), 4, "-");
    return;
  }
  row.push_back(time_text(ratio->peer_time));
  row.push_back(ratio->peer);
  row.push_back(fmt::format("{:.2f}", ratio->value));
  row.push_back(fmt::format("{:.2f}..{:.2f}", ratio->low, ratio->high));
}

/// Returns the summary table over all sizes. It has one row per line: a collective at a number of ranks, in place or
/// out of place. `ratio` selects the ratio to peers with default settings or with their best settings.
Table summary_table(const std::string& title, const std::vector<Line>& lines, std::optional<Ratio> Verdict::*ratio) {
  const auto mean_text = [](double mean) { return mean > 0 ? fmt::format("{:.2f}", mean) : "-"; };
  Table table{title, {}, {}};
  table.head = {"what", "ours", "geo. mean", "from 1 MiB", "worst", "slower", "roofline from 1 MiB", "from 16 MiB"};
  for (const Line& line : lines) {
    if (line.verdicts.empty()) continue;
    const Summary summary = summarize(line, ratio);
    const Verdict* const worst = summary.worst;
    table.rows.push_back({title_of(line.verdicts.front().cell), line.ours, mean_text(summary.all),
                          mean_text(summary.large),
                          worst == nullptr ? "-"
                                           : fmt::format("{:.2f} at {}, {}", (worst->*ratio)->value,
                                                         bytes_text(worst->cell.bytes), (worst->*ratio)->peer),
                          std::to_string(summary.slower), fraction_text(worst_roofline(line, kLargeBytes)),
                          fraction_text(worst_roofline(line, kHugeBytes))});
  }
  return table;
}

Table line_table(const Line& line, bool settings) {
  Table table{fmt::format("{}: {}", title_of(line.verdicts.front().cell), line.ours), {}, {}};
  table.head = {"bytes", "ours (us)", "best peer (us)", "who", "ratio", "95 %"};
  if (settings) {
    table.head.insert(table.head.end(), {"best setting (us)", "whose", "ratio", "95 %"});
  }
  table.head.insert(table.head.end(), {"roofline", "verdict"});
  for (const Verdict& verdict : line.verdicts) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {bytes_text(verdict.cell.bytes), time_text(verdict.time)};
    append(row, verdict.stock);
    if (settings) append(row, verdict.any);
    const bool bounded = verdict.cell.bytes <= kMostOfLines || verdict.cell.bytes >= kLeastOfOthers;
    row.push_back(bounded ? fraction_text(verdict.roofline) : "-");
    row.push_back(verdict.slower() ? "slower" : "");
  }
  for (const std::size_t bytes : line.missing) {
    std::vector<std::string>& row = table.rows.emplace_back(table.head.size(), "-");
    row.front() = bytes_text(bytes);
    row.back() = "missing";
  }
  return table;
}

bool looks_like_a_number(const std::string& text) {
  return text == "-" || (!text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0);
}

}  // namespace

std::string bytes_text(std::size_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::vector<Table> tables(const std::vector<Line>& lines) {
  const bool settings = std::ranges::any_of(lines, [](const Line& line) {
    return std::ranges::any_of(line.verdicts, [](const Verdict& verdict) { return verdict.any.has_value(); });
  });
  std::vector<Table> result{summary_table("Summary: best peer as it comes / ours", lines, &Verdict::stock)};
  if (settings) result.push_back(summary_table("Summary: best setting of any peer / ours", lines, &Verdict::any));
  for (const Line& line : lines) {
    if (!line.verdicts.empty()) result.push_back(line_table(line, settings));
  }
  return result;
}

std::string as_text(const Table& table) {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t column = 0; column < table.head.size(); ++column) {
    std::size_t width = table.head[column].size();
    bool numbers = true;
    for (const auto& row : table.rows) {
      width = std::max(width, row[column].size());
      numbers = numbers && looks_like_a_number(row[column]) && row[column].find(',') == std::string::npos;
    }
    widths.push_back(width);
    right.push_back(numbers);
  }
  const auto line_of = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      line += right[column] ? fmt::format("  {:>{}}", row[column], widths[column])
                            : fmt::format("  {:<{}}", row[column], widths[column]);
    }
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = table.title + "\n" + line_of(table.head);
  for (const auto& row : table.rows) text += line_of(row);
  return text;
}

std::string as_markdown(const Table& table) {
  std::string text = fmt::format("### {}\n\n| {} |\n|", table.title, fmt::join(table.head, " | "));
  for (std::size_t column = 0; column < table.head.size(); ++column) text += " --- |";
  text += "\n";
  for (const auto& row : table.rows) text += fmt::format("| {} |\n", fmt::join(row, " | "));
  return text;
}

}  // namespace collectives::compare
