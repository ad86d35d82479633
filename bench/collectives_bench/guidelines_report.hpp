// Report of the performance guidelines: violations with the plans of both sides, and a table on stdout. It can also
// write one JSON object for each cell to a file. A cell is a guideline for one collective, type, op and size. Only rank
// 0 writes the report. If stderr is a terminal, a progress line appears there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives_bench/guidelines.hpp"
#include "collectives_bench/guidelines_verdict.hpp"
#include "collectives_bench/report.hpp"

namespace collectives::bench {

/// All that is known about a cell.
struct CellResult {
  const GuidelineCell* cell = nullptr;
  std::vector<Comparison> runs = {};
  std::string left_out = {};                                   ///< reason; empty if the cell was measured
  std::vector<std::string> left_plans = {}, right_plans = {};  ///< plans of both sides if the guideline is violated

  GuidelineVerdict verdict() const noexcept { return verdict_on(runs); }
};

class GuidelineReport {
 public:
  /// Opens the JSON file of `settings`. Throws BadArguments if it cannot be written.
  explicit GuidelineReport(const Settings& settings);
  ~GuidelineReport();

  void begin(const Setting& setting, std::size_t cells, double seconds_per_size);
  /// Shows the progress line: `next` is measured now, and `done` of `all` cells of the run are complete.
  void progress(const GuidelineCell& next, std::size_t run, std::size_t done, std::size_t all);
  /// Prints a line that begins with #.
  void note(const std::string& text);
  /// Prints violations and the table, and writes the file. `ranks`: number of ranks.
  void end(const std::vector<CellResult>& results, int ranks);

 private:
  void clear_progress();

  const Settings& settings_;
  std::unique_ptr<OutputFile> json_;  // null: no file
  const bool terminal_;
};

}  // namespace collectives::bench
