// Report of collectives_bench, the benchmark of collectives. Only rank 0 writes the report: a table on stdout with the
// columns of NVIDIA's nccl-tests. It can also write the results to files, as JSON lines and as CSV. If stderr is a
// terminal, a progress line appears there.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives_bench/measure.hpp"
#include "collectives_bench/options.hpp"

namespace collectives {
class OutputFile;  // base/safe_file.hpp
}

namespace collectives::bench {

/// Machine and software of the measurements.
struct Setting {
  std::string host, ranks, transport, tuning, library, mpi, compiler, date, command;
  int cores = 0;        ///< cores that the ranks of one host may use together; 0 if unknown
  double clock_us = 0;  ///< time of one reading of the clock in microseconds
};

/// Returns the setting of this process. `mpi` is the version of MPI, or the reason why there is none.
Setting describe(const Communicator& comm, const std::string& mpi, int argc, const char* const* argv);

/// Returns the setting as the first lines of a report on stdout.
std::string text_of(const Setting&);
/// Returns the setting as the first line of a JSON file.
nlohmann::ordered_json to_json(const Setting&);

/// Prints to stdout. Ignores errors, so that the measurements continue. At the end, main() checks whether stdout had an
/// error.
template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stdout);
}

/// Returns the name of the op, or "none" if the operation does not reduce.
std::string_view op_name(const Case&) noexcept;
/// Formats a number with four significant digits for a column of a table.
std::string number(double value);

/// Opens a report file, which the option `flag` names. Returns null if `path` is empty.
std::unique_ptr<OutputFile> open_report(std::string_view flag, const std::string& path);
/// Closes a report file. Throws if the file was not written completely.
void close_report(std::string_view flag, const std::string& path, OutputFile& file);

class Report {
 public:
  /// Opens the files of `settings`. Throws BadArguments if one cannot be written.
  explicit Report(const Settings& settings);
  ~Report();

  void begin(const Setting& setting, double seconds_per_size);
  /// Shows the progress line: case `next` is measured now, and `done` of `all` measurements are complete.
  void progress(const Case& next, std::size_t done, std::size_t all);
  /// Adds a result to the report. Requires the order of schedule(): each result out of place directly before the one in
  /// place.
  void add(const Result& result);
  /// Ends the report. The argument `combinations` is the number of pairs of type and op that do not exist. The argument
  /// `refused` is the number of measurements that a forced backend does not support.
  void end(std::size_t combinations, std::size_t refused);

 private:
  void print_heading(const Case&);
  void print_row();
  void clear_progress();
  void write_json(const nlohmann::ordered_json& line);

  const Settings& settings_;
  std::unique_ptr<OutputFile> json_, csv_;  ///< null: no file
  std::vector<Result> results_;
  std::optional<std::size_t> held_;  // index of an out-of-place result that waits for its in-place half
  std::string heading_;              // heading of the section being printed
  const bool terminal_;
};

/// Returns the lines of the CSV file, the heading first.
std::string to_csv(const std::vector<Result>& results);

}  // namespace collectives::bench
