// What a run tells: a table for people, a progress bar on a terminal, JSON lines, CSV, a trace of the loss, a plot.
// Everything here happens on rank 0 only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mnist {

/// One epoch. Milliseconds are means over the ranks and the epoch's steps: compute + exposed is the whole step, and
/// hidden is communication under way while the step computed.
struct EpochReport {
  std::size_t epoch = 0;  ///< from 1
  std::size_t steps = 0;  ///< of this run: fewer than the epoch has after a resume or at the end of --max-steps
  float learning_rate = 0;
  double loss = 0;                    ///< mean over the images trained on
  double running_train_accuracy = 0;  ///< of the images as they were trained on
  double train_accuracy = 0;          ///< of the whole set, after the epoch
  double test_accuracy = 0;
  double images_per_second = 0;  ///< while training, over all ranks
  double compute_ms = 0, exposed_ms = 0, hidden_ms = 0;
  std::uint64_t bytes_sent = 0;  ///< by all ranks
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
