// Implementation of the reports of a training run: a table on stdout, files and a plot. Files are flushed after every
// line, so a run that ends early keeps its results.
#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/json.hpp"
#include "base/safe_file.hpp"
#include "dataset.hpp"

namespace mnist {
namespace {

constexpr int kBarWidth = 30;  // width of the progress bar in characters

std::unique_ptr<collectives::OutputFile> open(const std::filesystem::path& path) {
  if (path.empty()) return nullptr;
  auto file = std::make_unique<collectives::OutputFile>(path.string());
  if (!file->is_open())
    throw FileError(fmt::format("{}: cannot be written: {}", path.string(), collectives::file_error_text(errno)));
  return file;
}

void add_times(nlohmann::json& line, const StepTimes& times) {
  line["step_ms_median"] = times.median_ms;
  line["step_ms_p95"] = times.p95_ms;
  line["compute_ms"] = times.compute_ms;
  line["communication_exposed_ms"] = times.exposed_ms;
  line["communication_hidden_ms"] = times.hidden_ms;
}

nlohmann::json json_of(const CompressionReport& report) {
  nlohmann::json fields = {{"gradient_bytes_per_step", report.gradient_bytes},
                           {"raw_bytes_per_step", report.raw_bytes},
                           {"sent_bytes_per_step", report.sent_bytes},
                           {"compressed_share", report.compressed_share}};
  if (!report.reason.empty()) fields["reason"] = report.reason;
  if (!report.top_k) return fields;
  fields["chosen_per_step"] = report.chosen;
  fields["union_per_step"] = report.union_size;
  fields["coding_ms_per_step"] = report.coding_ms;
  fields["residual_norm"] = report.residual_norm;
  fields["relative_error"] = report.relative_error;
  return fields;
}

}  // namespace

Report::Report(ReportFiles files, bool quiet)
    : files_(std::move(files)),
      quiet_(quiet),
      terminal_(!quiet && ::isatty(STDERR_FILENO) == 1),
      json_(open(files_.json)),
      csv_(open(files_.csv)),
      loss_trace_(open(files_.loss_trace)) {
  if (csv_ != nullptr)
    *csv_ << "epoch,steps,learning_rate,loss,running_train_accuracy,train_accuracy,test_accuracy,images_per_second,"
             "compute_ms,communication_exposed_ms,communication_hidden_ms,bytes_sent,step_ms_median,step_ms_p95"
          << std::endl;
}

void Report::say(std::string_view line) {
  if (quiet_) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Report::json_line(const nlohmann::json& line) {
  if (json_ != nullptr) *json_ << collectives::json_text(line) << std::endl;
}

void Report::progress(std::size_t epoch, std::size_t step, std::size_t steps) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const auto done = static_cast<std::size_t>(kBarWidth) * step / steps;
  fmt::print(stderr, "\repoch {} [{:<{}}] {}/{} ", epoch, std::string(done, '='), kBarWidth, step, steps);
  std::fflush(stderr);
}

void Report::epoch(const EpochReport& report) {
  if (terminal_) fmt::print(stderr, "\r{:{}}\r", "", kBarWidth + 40);
  if (epochs_.empty())
    say(fmt::format("{:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>11} {:>11} {:>10} {:>10}", "epoch", "rate", "loss",
                    "running", "train", "test", "images/s", "compute ms", "exposed ms", "hidden ms", "sent MB"));
  say(fmt::format("{:>5} {:>8.2g} {:>8.4f} {:>8.4f} {:>8.4f} {:>8.4f} {:>9.0f} {:>11.3f} {:>11.3f} {:>10.3f} {:>10.1f}",
                  report.epoch, report.learning_rate, report.loss, report.running_train_accuracy, report.train_accuracy,
                  report.test_accuracy, report.images_per_second, report.times.compute_ms, report.times.exposed_ms,
                  report.times.hidden_ms, static_cast<double>(report.bytes_sent) / 1e6));
  epochs_.push_back(report);
  if (csv_ != nullptr)
    *csv_ << fmt::format("{},{},{},{:.9g},{:.6f},{:.6f},{:.6f},{:.1f},{:.4f},{:.4f},{:.4f},{},{:.4f},{:.4f}",
                         report.epoch, report.steps, report.learning_rate, report.loss, report.running_train_accuracy,
                         report.train_accuracy, report.test_accuracy, report.images_per_second, report.times.compute_ms,
                         report.times.exposed_ms, report.times.hidden_ms, report.bytes_sent, report.times.median_ms,
                         report.times.p95_ms)
          << std::endl;
  nlohmann::json line = {{"event", "epoch"},
                         {"epoch", report.epoch},
                         {"steps", report.steps},
                         {"total_steps", report.total_steps},
                         {"seconds", report.seconds},
                         {"learning_rate", report.learning_rate},
                         {"loss", report.loss},
                         {"running_train_accuracy", report.running_train_accuracy},
                         {"train_accuracy", report.train_accuracy},
                         {"test_accuracy", report.test_accuracy},
                         {"images_per_second", report.images_per_second},
                         {"bytes_sent", report.bytes_sent}};
  if (report.compression) line["compression"] = json_of(*report.compression);
  add_times(line, report.times);
  json_line(line);
}

void Report::test(const TestReport& report) {
  nlohmann::json line = {{"event", "test"},           {"epoch", report.epoch},
                         {"step", report.step},       {"total_steps", report.total_steps},
                         {"seconds", report.seconds}, {"test_accuracy", report.test_accuracy}};
  add_times(line, report.times);
  json_line(line);
}

void Report::goal(const GoalReport& report) {
  const std::string found =
      std::isnan(report.test_accuracy)
          ? "there was no test"
          : fmt::format("{} {:.4f}", report.reached ? "it is" : "the best was", report.test_accuracy);
  say(fmt::format("test accuracy {} {} after {} steps and {:.2f} seconds of training: {}", report.wanted,
                  report.reached ? "reached" : "not reached", report.total_steps, report.seconds, found));
  json_line({{"event", "reached"},
             {"reached", report.reached},
             {"wanted", report.wanted},
             {"test_accuracy", report.test_accuracy},
             {"steps", report.total_steps},
             {"seconds", report.seconds}});
}

void Report::losses(std::size_t first_step, std::span<const double> loss_of_step) {
  if (loss_trace_ == nullptr) return;
  for (const double loss : loss_of_step) *loss_trace_ << fmt::format("{} {:.9g}\n", first_step++, loss);
  loss_trace_->flush();
}

void Report::finish() {
  if (!files_.plot.empty()) say(plot(files_.plot, epochs_));
}

std::string plot(const std::filesystem::path& file, std::span<const EpochReport> epochs) {
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0)
    return fmt::format("no plot: gnuplot is not installed (it would have drawn {})", file.string());
  // gnuplot writes to a descriptor that it inherits. If it opened the path itself, it would follow a symbolic link
  // there.
  collectives::FileReplacement drawing(file.string());
  const collectives::Descriptor inherited(::dup(drawing.descriptor()));
  if (!inherited) return fmt::format("no plot: {}: {}", file.string(), collectives::file_error_text(errno));
  std::string script = fmt::format("set terminal {} size 900,400\nset output '/dev/fd/{}'\n$run << END\n",
                                   file.extension() == ".png" ? "pngcairo" : "svg", inherited.fd());
  for (const EpochReport& epoch : epochs)
    script += fmt::format("{} {} {} {} {}\n", epoch.epoch, epoch.loss, epoch.running_train_accuracy,
                          epoch.train_accuracy, epoch.test_accuracy);
  script +=
      "END\n"
      "set multiplot layout 1,2\n"
      "set xlabel 'epoch'\nset xtics 1\nset grid\nset offsets 0.2,0.2,0,0\n"
      "set ylabel 'loss'\nset logscale y\n"
      "plot $run using 1:2 with linespoints pt 7 notitle\n"
      "unset logscale y\nset ylabel 'accuracy'\nset key bottom right\n"
      "plot $run using 1:3 with linespoints pt 7 title 'train, running', "
      "'' using 1:4 with linespoints pt 7 title 'train', '' using 1:5 with linespoints pt 7 title 'test'\n"
      "unset multiplot\n";
  std::FILE* gnuplot = ::popen("gnuplot", "w");
  if (!gnuplot) return "no plot: gnuplot cannot be started";
  std::fwrite(script.data(), 1, script.size(), gnuplot);
  return ::pclose(gnuplot) == 0 && drawing.commit() ? fmt::format("plot: {}", file.string())
                                                    : fmt::format("no plot: gnuplot failed on {}", file.string());
}

}  // namespace mnist
