// Implementation of the plot of the comparison with other libraries. This file writes a program for gnuplot that
// contains the data of all curves. A contender is a library that is timed.
#include "plot.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "collectives_bench/statistics.hpp"

namespace collectives::compare {

namespace {

/// Curves of one diagram: data blocks of gnuplot, and the parts of its command `plot` that draw them.
struct Curves {
  std::string data;
  std::vector<std::string> clauses;

  /// Adds a curve. The first number of each row is x.
  void add(const std::string& name, const std::vector<std::vector<double>>& rows, const std::string& style) {
    const std::string block = fmt::format("$block_{}", ++blocks_);
    data += block + " << END\n";
    for (const auto& row : rows) data += fmt::format("{}\n", fmt::join(row, " "));
    data += "END\n";
    clauses.push_back(fmt::format("{} {} title '{}'", block, style, name));
  }

 private:
  int blocks_ = 0;
};

std::string style_of(Role role, std::size_t color) {
  switch (role) {
    case Role::ours: return fmt::format("with linespoints lw 3 pt 7 ps 0.4 lc {}", color);
    case Role::bound: return "with lines lw 1 dt 2 lc 'black'";
    case Role::peer: return fmt::format("with linespoints lw 1 pt 6 ps 0.4 lc {}", color);
    case Role::best_setting: return fmt::format("with lines lw 1 dt 4 lc {}", color);
  }
  return "";
}

/// Returns the columns of the plot: the collectives that were timed with `ranks` ranks, in place and out of place. The
/// sizes of the returned cells are not used.
std::vector<Cell> columns_of(const Samples& samples, int ranks) {
  std::set<Cell> columns;
  for (const auto& [cell, contenders] : samples.cells) {
    if (cell.ranks != ranks || cell.back_to_back) continue;
    Cell column = cell;
    column.bytes = 0;
    columns.insert(column);
  }
  return {columns.begin(), columns.end()};
}

bool stands_in(const Cell& cell, Cell column) {
  column.bytes = cell.bytes;
  return cell == column;
}

}  // namespace

std::string plot_program(const Samples& samples, const std::vector<Line>& lines, int ranks, const std::string& svg) {
  std::map<std::string, Role> contenders;
  for (const auto& [cell, each] : samples.cells) {
    for (const auto& [name, series] : each) contenders[name] = series.role;
  }
  const std::vector<Cell> columns = columns_of(samples, ranks);
  Curves curves;
  std::string panels;
  const auto panel = [&](const std::string& settings) {
    panels += settings + "plot " + fmt::format("{}", fmt::join(curves.clauses, ", ")) + "\n";
    curves.clauses.clear();
  };

  for (const Cell& column : columns) {
    std::size_t color = 0;
    for (const auto& [name, role] : contenders) {
      ++color;
      std::vector<std::vector<double>> rows;
      for (const auto& [cell, each] : samples.cells) {
        const auto found = each.find(name);
        if (!stands_in(cell, column) || found == each.end()) continue;
        std::vector<double> times;
        for (const auto& [round, time] : found->second.rounds) times.push_back(time);
        rows.push_back({static_cast<double>(cell.bytes), bench::median(times)});
      }
      if (!rows.empty()) curves.add(name, rows, style_of(role, color));
    }
    panel(fmt::format("set title '{}'\nset ylabel 'microseconds'\nset logscale y 10\n", title_of(column)));
  }
  for (const Cell& column : columns) {
    std::size_t color = 0;
    for (const Line& line : lines) {
      if (line.verdicts.empty() || !stands_in(line.verdicts.front().cell, column)) continue;
      for (const auto& [ratio, against] :
           {std::pair(&Verdict::stock, ""), std::pair(&Verdict::any, ", best settings")}) {
        ++color;
        std::vector<std::vector<double>> rows;
        for (const Verdict& verdict : line.verdicts) {
          if (const auto& found = verdict.*ratio) {
            rows.push_back({static_cast<double>(verdict.cell.bytes), found->value, found->low, found->high});
          }
        }
        if (rows.empty()) continue;
        curves.add(line.ours + against, rows, fmt::format("with yerrorlines lw 2 pt 7 ps 0.4 lc {}", color));
      }
    }
    curves.clauses.emplace_back("1 with lines lw 1 lc 'black' notitle");
    panel("set title ''\nset ylabel 'best peer / ours'\nset logscale y 2\n");
  }
  return fmt::format(
      "set terminal svg size {},900 noenhanced\nset output '{}'\n{}set multiplot layout 2,{}\n"
      "set logscale x 2\nset format x '%.0b %BB'\nset xlabel 'bytes'\nset xtics rotate by -45\nset grid\n"
      "set key top left Left reverse font ',9'\n{}unset multiplot\n",
      450 * columns.size(), svg, curves.data, columns.size(), panels);
}

}  // namespace collectives::compare
