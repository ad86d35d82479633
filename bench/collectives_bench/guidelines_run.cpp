// Implementation of the sub-command `guidelines`: up to three runs over the cells of the performance guidelines.
#include "collectives_bench/guidelines_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "collectives_bench/guidelines_load.hpp"
#include "collectives_bench/guidelines_measure.hpp"

namespace collectives::bench {

namespace {

/// Factor by which the second and the third run of a cell take longer. Few cells are measured again.
constexpr double kLongerRuns = 3;
// Number of cells after which the load is judged by all barriers since the last wait. If the machine is busy, these
// cells are measured again.
constexpr std::size_t kCellsOfBatch = 50;
// Number of times at which the program waits for an idle machine before it gives up, and the time of each wait. Load
// that other programs cause for some seconds then loses no results.
constexpr int kMostWaits = 15;
constexpr auto kWait = std::chrono::seconds(1);

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
    if (is_too_busy(load, outcome) && !becomes_idle(load, outcome)) return outcome;
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

  /// Returns whether there is other load. Stores the reason in the outcome of rank 0, and any text in that of others.
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

  /// Waits until the machine is idle. Returns false if it is still busy after kMostWaits waits, over all calls.
  bool becomes_idle(LoadCheck& load, GuidelineOutcome& outcome) {
    while (waits_++ < kMostWaits) {
      std::this_thread::sleep_for(kWait);
      load.begin();
      if (!is_too_busy(load, outcome)) {
        outcome.busy.clear();
        return true;
      }
    }
    return false;
  }

  /// Measures the cells that need this run. Returns false if the machine is too busy.
  bool measure(std::size_t run, LoadCheck& load, GuidelineOutcome& outcome) {
    std::vector<std::uint8_t> wanted(results_.size());  // whether each cell is measured; bytes, because ranks send them
    std::ranges::transform(results_, wanted.begin(), [run](const CellResult& result) {
      return static_cast<std::uint8_t>(run == 1 || result.verdict() == GuidelineVerdict::undecided);
    });
    comm_.broadcast(wanted, 0);
    std::vector<std::size_t> cells;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] != 0) cells.push_back(i);
    GuidelineMeasurement measurement(comm_, settings_, cells_);
    for (std::size_t done = 0; done < cells.size();) {
      const auto batch = std::span(cells).subspan(done, std::min(kCellsOfBatch, cells.size() - done));
      std::vector<std::optional<Comparison>> comparisons;
      for (const std::size_t cell : batch) {
        if (report_ != nullptr) report_->progress(cells_[cell], run, done + comparisons.size(), cells.size());
        const CellTimes times = measurement.run(cells_[cell], run == 1 ? seconds() : kLongerRuns * seconds());
        results_[cell].left_out = times.left_out;
        comparisons.push_back(comm_.rank() == 0 ? compare_sides(times.times, cells_[cell].guideline->weight)
                                                : std::nullopt);
        load.observe();
      }
      if (is_too_busy(load, outcome)) {
        if (!becomes_idle(load, outcome)) return false;
        continue;
      }
      for (std::size_t i = 0; i < batch.size(); ++i)
        if (comparisons[i]) results_[batch[i]].runs.push_back(*comparisons[i]);
      done += batch.size();
    }
    return true;
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
  int waits_ = 0;  // for an idle machine
};

}  // namespace

GuidelineOutcome run_guidelines(Communicator& comm, const Settings& settings, GuidelineReport* report,
                                const Setting& setting) {
  return GuidelineRuns(comm, settings, report).run(setting);
}

}  // namespace collectives::bench
