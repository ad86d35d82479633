// What a run tells: a table for people, a progress bar on a terminal, JSON lines, CSV, a trace of the loss, a plot.
// Everything here happens on rank 0 only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression.hpp"
#include "step_log.hpp"

namespace mnist {

/// One epoch.
struct EpochReport {
  std::size_t epoch = 0;        ///< from 1
  std::size_t steps = 0;        ///< of this run: fewer than the epoch has after a resume or when the run ends within it
  std::size_t total_steps = 0;  ///< since the very start
  double seconds = 0;           ///< of training by this run, over all its epochs
  float learning_rate = 0;
  double loss = 0;                    ///< mean over the images trained on
  double running_train_accuracy = 0;  ///< of the images as they were trained on
  double train_accuracy = 0;          ///< of the whole set, after the epoch
  double test_accuracy = 0;
  double images_per_second = 0;  ///< while training, over all ranks
  StepTimes times;
  std::uint64_t bytes_sent = 0;  ///< by all ranks, while training
  std::optional<CompressionReport> compression = {};
};

/// A look at the test set within an epoch.
struct TestReport {
  std::size_t epoch = 0, step = 0;  ///< from 1; so many steps of the epoch are done
  std::size_t total_steps = 0;      ///< since the very start
  double seconds = 0;               ///< of training by this run
  double test_accuracy = 0;
  StepTimes times;  ///< of the steps since the last look, or since the epoch began
};

/// Whether the test accuracy came up to what was wished for, and when; or what the best one was, and where the run
/// ended.
struct GoalReport {
  double wanted = 0;
  bool reached = false;
  double test_accuracy = std::numeric_limits<double>::quiet_NaN();  ///< no number without a test
  std::size_t total_steps = 0;                                      ///< since the very start
  double seconds = 0;                                               ///< of training by this run
};

struct ReportFiles {
  std::filesystem::path json = {}, csv = {}, loss_trace = {}, plot = {};  ///< empty: not wanted
};

class Report {
 public:
  /// Opens the files; throws FileError naming one that cannot be written.
  Report(ReportFiles files, bool quiet);

  /// A line on stdout, unless quiet.
  void say(std::string_view line);
  /// One line in the JSON file.
  void json_line(const nlohmann::json& line);
  /// Redraws the progress bar on stderr when that is a terminal, at most ten times a second.
  void progress(std::size_t epoch, std::size_t step, std::size_t steps);
  void epoch(const EpochReport& report);
  void test(const TestReport& report);
  void goal(const GoalReport& report);
  /// Mean loss of consecutive steps, the first of which is number `first_step` of the run, counted from 0.
  void losses(std::size_t first_step, std::span<const double> loss_of_step);
  /// Draws the plot.
  void finish();

 private:
  ReportFiles files_;
  bool quiet_, terminal_;
  std::ofstream json_, csv_, loss_trace_;
  std::vector<EpochReport> epochs_;
  std::chrono::steady_clock::time_point drawn_;
};

/// Loss and accuracies over the epochs, drawn by gnuplot as an .svg or .png. Returns what there is to say about it in
/// one line: where it is, or why there is none.
std::string plot(const std::filesystem::path& file, std::span<const EpochReport> epochs);

}  // namespace mnist
