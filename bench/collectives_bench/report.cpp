// Implementation of the report of collectives_bench: the table on stdout, and files with the same results as JSON lines
// and CSV. "Ours" is a time of this library. The competitor is MPI, if it was also timed.
#include "collectives_bench/report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/json.hpp"
#include "base/safe_file.hpp"
#include "collectives/version.hpp"
#include "collectives_bench/statistics.hpp"

namespace collectives::bench {

namespace {

using Json = nlohmann::ordered_json;

int root_of(const Case& c, Rank root) { return has_root(c.operation) ? root : -1; }

/// Returns MPI's time divided by ours. Values above 1 mean that our library is faster.
std::optional<double> ratio(const Result& result) {
  if (!result.competitor || result.ours.time <= 0 || result.competitor->time <= 0) return std::nullopt;
  return result.competitor->time / result.ours.time;
}

/// Returns the bound divided by our time. The bound is the shortest time that memory permits (roofline.hpp), so 1 is
/// the maximum.
std::optional<double> fraction_of_roofline(const Result& result) {
  if (!result.bound || result.ours.time <= 0) return std::nullopt;
  return result.bound->time / result.ours.time;
}

std::string_view name(Stores stores) { return stores == Stores::plain ? "plain" : "non_temporal"; }

std::string wrong_text(const Result& result) { return result.wrong ? fmt::format("{}", *result.wrong) : "N/A"; }

std::string placement_columns(const Result& r, const Settings& settings) {
  std::string text = fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", number(r.ours.time), number(r.algbw),
                                 number(r.busbw), wrong_text(r), number(r.ours.p50), number(r.ours.p99));
  if (settings.against_mpi) {
    const auto faster = ratio(r);
    text +=
        fmt::format(" {:>9} {:>8}", r.competitor ? number(r.competitor->time) : "-", faster ? number(*faster) : "-");
  }
  if (settings.fraction_of_roofline) {
    const auto reached = fraction_of_roofline(r);
    text += fmt::format(" {:>9} {:>8}", r.bound ? number(r.bound->time) : "-", reached ? number(*reached) : "-");
  }
  return text;
}

std::string placement_heading(const Settings& settings) {
  return fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", "time", "algbw", "busbw", "#wrong", "p50", "p99") +
         (settings.against_mpi ? fmt::format(" {:>9} {:>8}", "mpi", "mpi/ours") : "") +
         (settings.fraction_of_roofline ? fmt::format(" {:>9} {:>8}", "bound", "fraction") : "");
}

std::string placement_units(const Settings& settings) {
  return fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)") +
         (settings.against_mpi ? fmt::format(" {:>9} {:>8}", "(us)", "") : "") +
         (settings.fraction_of_roofline ? fmt::format(" {:>9} {:>8}", "(us)", "") : "");
}

/// Returns ratios of MPI's time to ours, for geometric means. There is one list per collective and backend, in the
/// order of the table. The last list contains all ratios. Calls without data are left out, except barriers.
std::vector<std::pair<std::string, std::vector<double>>> ratios(const std::vector<Result>& results) {
  std::vector<std::pair<std::string, std::vector<double>>> groups;
  std::vector<double> all;
  for (const Result& result : results) {
    const auto value = ratio(result);
    if (!value || (result.bytes == 0 && result.what.operation != Operation::barrier)) continue;
    const std::string name = fmt::format("{} {}", to_string(result.what.operation), result.what.backend);
    if (groups.empty() || groups.back().first != name) groups.emplace_back(name, std::vector<double>());
    groups.back().second.push_back(*value);
    all.push_back(*value);
  }
  groups.emplace_back("all", std::move(all));
  return groups;
}

/// Returns the value as JSON, or null if it is absent.
template <class T>
Json json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json to_json(const Result& r, const Settings& settings) {
  const Case& c = r.what;
  Json row = {{"kind", "result"},
              {"collective", to_string(c.operation)},
              {"backend", c.backend},
              {"compress", c.compression.name},
              {"size_bytes", r.bytes},
              {"count", c.count},
              {"type", to_string(c.type)},
              {"op", op_name(c)},
              {"root", root_of(c, settings.root)},
              {"in_place", c.in_place},
              {"buffers", to_string(settings.buffers)},
              {"time_us", r.ours.time},
              {"p50_us", r.ours.p50},
              {"p99_us", r.ours.p99},
              {"algbw_gb_s", r.algbw},
              {"busbw_gb_s", r.busbw},
              {"wrong", json(r.wrong)},
              {"iterations", r.iterations},
              {"plan", r.plan},
              {"wire_bytes", r.wire_bytes},
              {"coding_us", r.coding_us}};
  if (settings.against_mpi) {
    row["mpi_time_us"] = r.competitor ? Json(r.competitor->time) : Json();
    row["mpi_p50_us"] = r.competitor ? Json(r.competitor->p50) : Json();
    row["mpi_p99_us"] = r.competitor ? Json(r.competitor->p99) : Json();
    row["mpi_over_ours"] = json(ratio(r));
  }
  if (settings.fraction_of_roofline) {
    row["roofline_us"] = r.bound ? Json(r.bound->time) : Json();
    row["roofline_stores"] = r.bound ? Json(name(r.bound->stores)) : Json();
    row["fraction_of_roofline"] = json(fraction_of_roofline(r));
  }
  if (settings.samples) {
    row["samples_us"] = r.ours.samples;
    if (settings.against_mpi) row["mpi_samples_us"] = r.competitor ? Json(r.competitor->samples) : Json();
  }
  return row;
}

std::size_t total_wrong(const std::vector<Result>& results) {
  std::size_t wrong = 0;
  for (const Result& result : results) wrong += result.wrong.value_or(0);
  return wrong;
}

}  // namespace

std::string_view op_name(const Case& c) noexcept { return is_reduction(c.operation) ? to_string(c.op) : "none"; }

std::string number(double value) {
  return value >= 1000  ? fmt::format("{:.0f}", value)
         : value >= 100 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.2f}", value);
}

void close_report(std::string_view flag, const std::string& path, OutputFile& file) {
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} {}: writing failed", flag, path));
}

std::unique_ptr<OutputFile> open_report(std::string_view flag, const std::string& path) {
  if (path.empty()) return nullptr;
  auto file = std::make_unique<OutputFile>(path);
  if (file->is_open()) return file;
  throw BadArguments(fmt::format("{} {}: cannot be written: {}; valid: a path in a directory that exists", flag, path,
                                 file_error_text(errno)));
}

Setting describe(const Communicator& comm, const std::string& mpi, int argc, const char* const* argv) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  Setting setting;
  setting.host = host;
  setting.ranks = to_string(comm.topology());
  setting.transport = comm.transport();
  setting.tuning = comm.tuning().source;
  setting.library = fmt::format("collectives {}", version());
  setting.mpi = mpi;
  setting.compiler = COLLECTIVES_COMPILER;
  setting.date = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
  setting.command = fmt::format("{}", fmt::join(std::span(argv, static_cast<std::size_t>(argc)), " "));
  setting.cores = comm.topology().cores_per_host;
  setting.clock_us = clock_cost();
  return setting;
}

std::string text_of(const Setting& setting) {
  const std::string cores = setting.cores > 0 ? fmt::format("{}", setting.cores) : "unknown";
  return fmt::format("# {}, {}, transport {}, tuning {}\n", setting.library, setting.ranks, setting.transport,
                     setting.tuning) +
         fmt::format("# host {}, {} usable cores, {}, {}\n", setting.host, cores, setting.mpi, setting.compiler) +
         fmt::format("# {}, {}\n", setting.date, setting.command);
}

nlohmann::ordered_json to_json(const Setting& setting) {
  return {{"kind", "setting"},
          {"library", setting.library},
          {"ranks", setting.ranks},
          {"transport", setting.transport},
          {"tuning", setting.tuning},
          {"host", setting.host},
          {"cores", setting.cores},
          {"mpi", setting.mpi},
          {"compiler", setting.compiler},
          {"date", setting.date},
          {"command", setting.command},
          {"clock_us", setting.clock_us}};
}

Report::Report(const Settings& settings) : settings_(settings), terminal_(isatty(STDERR_FILENO) == 1) {
  json_ = open_report("--json", settings.json_file);
  csv_ = open_report("--csv", settings.csv_file);
}

Report::~Report() = default;

void Report::begin(const Setting& setting, double seconds_per_size) {
  print("{}", text_of(setting));
  const std::string calls = settings_.iterations > 0 ? fmt::format("{} calls", settings_.iterations)
                                                     : fmt::format("{:.3g} s", seconds_per_size);
  print("# {} for each measurement after {} warm-up calls, {}, results {}\n", calls, settings_.warmup,
        settings_.back_to_back ? "back to back: time is that of all loops over their calls"
                               : "a barrier of ours before each: time is the median of the slowest rank",
        settings_.check ? "verified" : "not verified");
  print("# {} buffers{}; the clock takes {:.0f} ns, which a time includes once\n", to_string(settings_.buffers),
        settings_.rotate > 0 ? fmt::format(", {} B of them in turn", settings_.rotate) : "", setting.clock_us * 1e3);
  print(
      "# size in bytes is the whole vector; count is that of nccl-tests: one rank's part, if the vector has a part for "
      "each rank; ping_pong: half of the time to and fro\n");
  Json line = to_json(setting);
  line["back_to_back"] = settings_.back_to_back;
  line["rotate_bytes"] = settings_.rotate;
  write_json(line);
}

void Report::progress(const Case& next, std::size_t done, std::size_t all) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}/{} {} {} {} {}, {} elements{}", done + 1, all, to_string(next.operation), next.backend,
             to_string(next.type), op_name(next), next.count, next.in_place ? ", in place" : "");
  std::fflush(stderr);
}

void Report::clear_progress() {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void Report::print_heading(const Case& c) {
  const std::string heading = fmt::format("{}, backend {}{}", to_string(c.operation), c.backend,
                                          c.compression.none() ? "" : fmt::format(", {}", c.compression.name));
  if (heading == heading_) return;
  heading_ = heading;
  const bool has_both = has_in_place(c.operation);
  const bool both = settings_.out_of_place && settings_.in_place && has_both;
  const std::size_t width = placement_heading(settings_).size();
  const std::string blank = fmt::format("#{:>11} {:>11} {:>5} {:>14} {:>5}", "", "", "", "", "");
  const auto placements = [&](auto&& column) { return column(settings_) + (both ? column(settings_) : std::string()); };
  print("#\n# {}\n", heading);
  print("{} {:^{}}{}\n", blank, settings_.out_of_place || !has_both ? "out-of-place" : "in-place", width - 1,
        both ? fmt::format(" {:^{}}", "in-place", width - 1) : "");
  print("#{:>11} {:>11} {:>5} {:>14} {:>5}{}  {}\n", "size", "count", "type", "redop", "root",
        placements(placement_heading), "plan");
  print("#{:>11} {:>11} {:>5} {:>14} {:>5}{}\n", "(B)", "(elements)", "", "", "", placements(placement_units));
}

void Report::add(const Result& result) {
  const bool first_half = settings_.in_place && !result.what.in_place && has_in_place(result.what.operation);
  write_json(to_json(result, settings_));
  results_.push_back(result);
  // The samples have been written by now if --samples was given.
  results_.back().ours.samples = {};
  if (results_.back().competitor) results_.back().competitor->samples = {};
  if (first_half) {
    held_ = results_.size() - 1;
  } else {
    print_row();
  }
}

/// Prints the latest result, after its out-of-place half if there is one.
void Report::print_row() {
  clear_progress();
  const Result& last = results_.back();
  const Case& c = last.what;
  print_heading(c);
  print(" {:>11} {:>11} {:>5} {:>14} {:>5}{}{}  {}\n", last.bytes, c.count, to_string(c.type), op_name(c),
        root_of(c, settings_.root), held_ ? placement_columns(results_[*held_], settings_) : "",
        placement_columns(last, settings_), last.plan);
  std::fflush(stdout);
  held_.reset();
}

void Report::end(std::size_t combinations, std::size_t refused) {
  clear_progress();
  print("#\n");
  if (combinations + refused > 0) {
    print("# skipped: {} pairs of type and op that do not exist, {} measurements that their backend cannot do\n",
          combinations, refused);
  }
  if (settings_.against_mpi) {
    for (const auto& [name, values] : ratios(results_)) {
      print("# mpi/ours, geometric mean: {:<28} {:.3f} over {} measurements above 0 B\n", name, geometric_mean(values),
            values.size());
    }
  }
  if (settings_.check) {
    print("# wrong elements: {} in {} measurements\n", total_wrong(results_), results_.size());
  } else {
    print("# {} measurements, not verified\n", results_.size());
  }
  std::fflush(stdout);
  Json summary = {{"kind", "summary"}, {"measurements", results_.size()}, {"wrong", total_wrong(results_)}};
  if (settings_.against_mpi) {
    Json& means = summary["mpi_over_ours_geometric_mean"] = Json::object();
    for (const auto& [name, values] : ratios(results_)) means[name] = geometric_mean(values);
  }
  write_json(summary);
  if (json_) close_report("--json", settings_.json_file, *json_);
  if (csv_) {
    *csv_ << to_csv(results_);
    close_report("--csv", settings_.csv_file, *csv_);
  }
}

/// Writes and flushes one line, so that a run that ends early keeps its results.
void Report::write_json(const nlohmann::ordered_json& line) {
  if (json_) *json_ << json_text(line) << '\n' << std::flush;
}

std::string to_csv(const std::vector<Result>& results) {
  std::string text =
      "collective,backend,size_bytes,count,type,op,placement,time_us,p50_us,p99_us,algbw_gb_s,busbw_gb_s,wrong,"
      "iterations,mpi_time_us,mpi_over_ours,roofline_us,fraction_of_roofline,plan,compress,wire_bytes\n";
  for (const Result& r : results) {
    const auto faster = ratio(r), reached = fraction_of_roofline(r);
    text +=
        fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{},{},{},{},{},{},{},{},{}\n",
                    to_string(r.what.operation), r.what.backend, r.bytes, r.what.count, to_string(r.what.type),
                    op_name(r.what), r.what.in_place ? "in_place" : "out_of_place", r.ours.time, r.ours.p50, r.ours.p99,
                    r.algbw, r.busbw, r.wrong ? fmt::format("{}", *r.wrong) : "", r.iterations,
                    r.competitor ? fmt::format("{:.3f}", r.competitor->time) : "",
                    faster ? fmt::format("{:.4f}", *faster) : "", r.bound ? fmt::format("{:.3f}", r.bound->time) : "",
                    reached ? fmt::format("{:.4f}", *reached) : "", r.plan, r.what.compression.name, r.wire_bytes);
  }
  return text;
}

}  // namespace collectives::bench
