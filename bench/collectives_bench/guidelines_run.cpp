// Implementation of the sub-command `guidelines`: up to three runs over the cells of the performance guidelines.
#include "collectives_bench/guidelines_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives_bench/guidelines_load.hpp"
#include "collectives_bench/guidelines_measure.hpp"

namespace collectives::bench {

namespace {

/// Factor by which the second and the third run of a cell take longer. Few cells are measured again.
constexpr double kLongerRuns = 3;
constexpr std::size_t kCellsBetweenChecks = 50;  // cells after which the load is judged; judging sorts all barriers

/// All runs on one rank.
class GuidelineRuns {
 public:
  GuidelineRuns(Communicator& comm, const Settings& settings, GuidelineReport* report)
      : comm_(comm), settings_(settings), report_(report), cells_(guideline_cells(settings, comm.size())) {
    for (const GuidelineCell& cell : cells_) results_.push_back({&cell});
  }

  GuidelineOutcome run(const Setting& setting) {
    LoadCheck load(comm_);
    GuidelineOutcome outcome;
    if (is_too_busy(load, outcome)) return outcome;
    if (report_ != nullptr) report_->begin(setting, cells_.size(), seconds());
    for (std::size_t run = 1; run <= kGuidelineRuns; ++run)
      if (!measure(run, load, outcome)) return outcome;
    report_plans();
    outcome.violated = static_cast<std::size_t>(std::ranges::count_if(results_, is_violated));
    if (report_ != nullptr) {
      report_->end(results_, comm_.size());
      report_->note(load.description());
    }
    outcome.violated = told(outcome.violated);
    return outcome;
  }

 private:
  static bool is_violated(const CellResult& result) { return result.verdict() == GuidelineVerdict::violated; }

  double seconds() const noexcept {
    return settings_.seconds_per_size > 0 ? settings_.seconds_per_size : kGuidelineSeconds;
  }

  /// Returns the number that rank 0 has passed.
  std::uint64_t told(std::uint64_t number) {
    std::uint64_t numbers[] = {number};
    comm_.broadcast(numbers, 0);
    return numbers[0];
  }

  /// Returns whether to stop because of other load. Then stores the reason of rank 0 there, and any text elsewhere.
  bool is_too_busy(const LoadCheck& load, GuidelineOutcome& outcome) {
    std::optional<std::string> reason;
    if (comm_.rank() == 0) reason = load.reason();
    if (told(reason ? 1 : 0) == 0) return false;
    const std::string text = reason.value_or("rank 0 found load");
    if (!settings_.guidelines->judge_busy) {
      outcome.busy = text;
      return true;
    }
    if (report_ != nullptr && !std::exchange(warned_, true))
      report_->note("busy machine, judged all the same: " + text);
    return false;
  }

  /// Measures the cells that need this run. Returns false if the machine is too busy.
  bool measure(std::size_t run, LoadCheck& load, GuidelineOutcome& outcome) {
    std::vector<std::uint8_t> wanted(results_.size());  // whether each cell is measured; bytes, because ranks send them
    std::ranges::transform(results_, wanted.begin(), [run](const CellResult& result) {
      return static_cast<std::uint8_t>(run == 1 || result.verdict() == GuidelineVerdict::undecided);
    });
    comm_.broadcast(wanted, 0);
    const auto all = static_cast<std::size_t>(std::ranges::count(wanted, 1));
    if (all == 0) return true;
    GuidelineMeasurement measurement(comm_, settings_, cells_);
    std::size_t done = 0;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (wanted[i] == 0) continue;
      if (report_ != nullptr) report_->progress(cells_[i], run, done, all);
      const CellTimes times = measurement.run(cells_[i], run == 1 ? seconds() : kLongerRuns * seconds());
      results_[i].left_out = times.left_out;
      if (comm_.rank() == 0)
        if (const auto comparison = compare_sides(times.times, cells_[i].guideline->weight))
          results_[i].runs.push_back(*comparison);
      load.observe();
      if (++done % kCellsBetweenChecks == 0 && is_too_busy(load, outcome)) return false;
    }
    return !is_too_busy(load, outcome);
  }

  /// Stores the plans of violated cells.
  void report_plans() {
    if (report_ == nullptr) return;
    for (CellResult& result : results_) {
      if (!is_violated(result)) continue;
      result.left_plans = plans_of(comm_, result.cell->left);
      result.right_plans = plans_of(comm_, result.cell->right);
    }
  }

  Communicator& comm_;
  const Settings& settings_;
  GuidelineReport* const report_;
  const std::vector<GuidelineCell> cells_;
  std::vector<CellResult> results_;  // one for each cell; only rank 0 has comparisons
  bool warned_ = false;
};

}  // namespace

GuidelineOutcome run_guidelines(Communicator& comm, const Settings& settings, GuidelineReport* report,
                                const Setting& setting) {
  return GuidelineRuns(comm, settings, report).run(setting);
}

}  // namespace collectives::bench
