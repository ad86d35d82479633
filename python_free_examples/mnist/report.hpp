// Reports of a training run, which only rank 0 writes. They are a table, files with JSON lines and CSV, a trace of the
// loss, and a plot. On a terminal, they also include a progress bar.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/safe_file.hpp"
#include "compression.hpp"
#include "step_log.hpp"

namespace mnist {

/// Report of an epoch, one pass over all training images.
struct EpochReport {
  std::size_t epoch = 0;        ///< number of the epoch, counted from 1
  std::size_t steps = 0;        ///< steps of the epoch that this run made; a resumed or ended run makes fewer than all
  std::size_t total_steps = 0;  ///< steps since the start of training, also before a resume
  double seconds = 0;           ///< seconds of training in this run so far
  float learning_rate = 0;
  double loss = 0;                    ///< mean loss of the training images of the epoch
  double running_train_accuracy = 0;  ///< accuracy on the training images, each measured in the step that used it
  double train_accuracy = 0;          ///< accuracy on all training images after the epoch
  double test_accuracy = 0;
  double images_per_second = 0;  ///< training images per second of all ranks together
  StepTimes times;
  std::uint64_t bytes_sent = 0;  ///< bytes that all ranks sent while training
  std::optional<CompressionReport> compression = {};
};

/// Report of a test between two steps of an epoch.
struct TestReport {
  std::size_t epoch = 0, step = 0;  ///< number of the epoch, counted from 1, and number of its completed steps
  std::size_t total_steps = 0;      ///< steps since the start of training, also before a resume
  double seconds = 0;               ///< seconds of training in this run
  double test_accuracy = 0;
  StepTimes times;  ///< times of the steps since the last test or the start of the epoch
};

/// Report at the end of a run with a goal for the test accuracy. It says when the goal was reached, or gives the best
/// accuracy if it was not.
struct GoalReport {
  double wanted = 0;
  bool reached = false;
  double test_accuracy = std::numeric_limits<double>::quiet_NaN();  ///< accuracy reached; NaN without a test
  std::size_t total_steps = 0;                                      ///< steps since the start of the first run
  double seconds = 0;                                               ///< seconds of training in this run
};

struct ReportFiles {
  std::filesystem::path json = {}, csv = {}, loss_trace = {}, plot = {};  ///< paths; empty: no file
};

class Report {
 public:
  /// Opens the files. Throws FileError that names a file that cannot be written.
  Report(ReportFiles files, bool quiet);

  /// Prints a line on stdout, unless quiet.
  void say(std::string_view line);
  /// Writes one line to the JSON file.
  void json_line(const nlohmann::json& line);
  /// Redraws the progress bar if stderr is a terminal, at most ten times a second.
  void progress(std::size_t epoch, std::size_t step, std::size_t steps);
  void epoch(const EpochReport& report);
  void test(const TestReport& report);
  void goal(const GoalReport& report);
  /// Writes the mean loss of consecutive steps. `first_step` is the number of the first one in the run, counted from 0.
  void losses(std::size_t first_step, std::span<const double> loss_of_step);
  /// Draws the plot.
  void finish();

 private:
  ReportFiles files_;
  bool quiet_, terminal_;
  /// Null: no file. Like streams, they keep a failure to write as their state.
  std::unique_ptr<collectives::OutputFile> json_, csv_, loss_trace_;
  std::vector<EpochReport> epochs_;
  std::chrono::steady_clock::time_point drawn_;
};

/// Draws loss and accuracies over the epochs with gnuplot as .svg or .png. Returns one line with the file, or with the
/// reason why there is none.
std::string plot(const std::filesystem::path& file, std::span<const EpochReport> epochs);

}  // namespace mnist
