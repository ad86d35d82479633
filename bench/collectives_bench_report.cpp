#include "collectives_bench_report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "collectives_bench_statistics.hpp"

namespace collectives::bench {

namespace {

using Json = nlohmann::ordered_json;

std::string_view op_name(const Case& c) { return is_reduction(c.collective) ? to_string(c.op) : "none"; }
int root_of(const Case& c, Rank root) { return has_root(c.collective) ? root : -1; }

/// To stdout. Measuring goes on when that fails; the program asks the stream at its end.
template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stdout);
}

/// Four significant digits, as many columns as nccl-tests.
std::string number(double value) {
  return value >= 1000  ? fmt::format("{:.0f}", value)
         : value >= 100 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.2f}", value);
}

/// mpi/ours: above 1 we are faster.
std::optional<double> ratio(const Result& result) {
  if (!result.rival || result.ours.time <= 0 || result.rival->time <= 0) return std::nullopt;
  return result.rival->time / result.ours.time;
}

std::string wrong_text(const Result& result) { return result.wrong ? fmt::format("{}", *result.wrong) : "N/A"; }

std::string placement_columns(const Result& r, bool rival) {
  std::string text = fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", number(r.ours.time), number(r.algbw),
                                 number(r.busbw), wrong_text(r), number(r.ours.p50), number(r.ours.p99));
  if (rival) {
    const auto faster = ratio(r);
    text += fmt::format(" {:>9} {:>8}", r.rival ? number(r.rival->time) : "-", faster ? number(*faster) : "-");
  }
  return text;
}

std::string placement_heading(bool rival) {
  return fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", "time", "algbw", "busbw", "#wrong", "p50", "p99") +
         (rival ? fmt::format(" {:>9} {:>8}", "mpi", "mpi/ours") : "");
}

std::string placement_units(bool rival) {
  return fmt::format(" {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)") +
         (rival ? fmt::format(" {:>9} {:>8}", "(us)", "") : "");
}

/// What geometric means of mpi/ours are taken of: one list for each collective and backend, in the order of the table,
/// then of all. Calls that move nothing, barriers excepted, are no contest and stay outside.
std::vector<std::pair<std::string, std::vector<double>>> ratios(const std::vector<Result>& results) {
  std::vector<std::pair<std::string, std::vector<double>>> groups;
  std::vector<double> all;
  for (const Result& result : results) {
    const auto value = ratio(result);
    if (!value || (result.bytes == 0 && result.what.collective != Collective::barrier)) continue;
    const std::string name = fmt::format("{} {}", to_string(result.what.collective), result.what.backend);
    if (groups.empty() || groups.back().first != name) groups.emplace_back(name, std::vector<double>());
    groups.back().second.push_back(*value);
    all.push_back(*value);
  }
  groups.emplace_back("all", std::move(all));
  return groups;
}

std::size_t total_wrong(const std::vector<Result>& results) {
  std::size_t wrong = 0;
  for (const Result& result : results) wrong += result.wrong.value_or(0);
  return wrong;
}

/// A file that could not be written whole is a failure, however right the results are.
void close(std::string_view flag, const std::string& path, std::ofstream& file) {
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} {}: writing failed", flag, path));
}

std::ofstream open(std::string_view flag, const std::string& path) {
  std::ofstream file(path);
  if (!file)
    throw BadArguments(fmt::format("{} {}: cannot be written; valid: a path in a directory that exists", flag, path));
  return file;
}

}  // namespace

Setting describe(const Communicator& comm, const std::string& mpi, int argc, const char* const* argv) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  Setting setting;
  setting.host = host;
  setting.ranks = to_string(comm.topology());
  setting.transport = comm.transport();
  setting.library = "collectives " COLLECTIVES_VERSION;
  setting.mpi = mpi;
  setting.compiler = COLLECTIVES_COMPILER;
  setting.date = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
  setting.command = fmt::format("{}", fmt::join(std::span(argv, static_cast<std::size_t>(argc)), " "));
  setting.cores = comm.topology().cores_per_host;
  return setting;
}

Report::Report(const Settings& settings) : settings_(settings), terminal_(isatty(STDERR_FILENO) == 1) {
  if (!settings.json_file.empty()) json_ = open("--json", settings.json_file);
  if (!settings.csv_file.empty()) csv_ = open("--csv", settings.csv_file);
}

void Report::begin(const Setting& setting, double seconds_per_size) {
  setting_ = setting;
  print("# {}, {}, transport {}\n", setting.library, setting.ranks, setting.transport);
  print("# host {}, {} usable cores, {}, {}\n", setting.host,
        setting.cores > 0 ? fmt::format("{}", setting.cores) : "unknown", setting.mpi, setting.compiler);
  print("# {}, {}\n", setting.date, setting.command);
  const std::string calls = settings_.iterations > 0 ? fmt::format("{} calls", settings_.iterations)
                                                     : fmt::format("{:.3g} s", seconds_per_size);
  print("# {} for each measurement after {} warm-up calls, {}, results {}\n", calls, settings_.warmup,
        settings_.back_to_back ? "back to back: time is the loop over its calls"
                               : "a barrier before each: time is the median of the slowest rank",
        settings_.check ? "verified" : "not verified");
  print(
      "# size in bytes is the whole vector; count is that of nccl-tests: one rank's part for reduce_scatter and "
      "all_gather\n");
}

void Report::progress(const Case& next, std::size_t done, std::size_t all) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}/{} {} {} {} {}, {} elements{}", done + 1, all, to_string(next.collective),
             next.backend, to_string(next.type), op_name(next), next.count, next.in_place ? ", in place" : "");
  std::fflush(stderr);
}

void Report::clear_progress() {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void Report::print_heading(const Case& c) {
  const std::string heading = fmt::format("{}, backend {}", to_string(c.collective), c.backend);
  if (heading == heading_) return;
  heading_ = heading;
  const bool both = settings_.out_of_place && settings_.in_place, rival = settings_.against_mpi;
  const std::size_t width = placement_heading(rival).size();
  const std::string blank = fmt::format("#{:>11} {:>11} {:>5} {:>14} {:>5}", "", "", "", "", "");
  const auto placements = [&](auto&& column) { return column(rival) + (both ? column(rival) : std::string()); };
  print("#\n# {}\n", heading);
  print("{} {:^{}}{}\n", blank, settings_.out_of_place ? "out-of-place" : "in-place", width - 1,
        both ? fmt::format(" {:^{}}", "in-place", width - 1) : "");
  print("#{:>11} {:>11} {:>5} {:>14} {:>5}{}  {}\n", "size", "count", "type", "redop", "root",
        placements(placement_heading), "plan");
  print("#{:>11} {:>11} {:>5} {:>14} {:>5}{}\n", "(B)", "(elements)", "", "", "", placements(placement_units));
}

void Report::add(const Result& result) {
  const bool first_half = settings_.in_place && !result.what.in_place && result.what.collective != Collective::barrier;
  results_.push_back(result);
  if (first_half) {
    held_ = results_.size() - 1;
  } else {
    print_row();
  }
}

/// The latest result, behind its other half if there is one.
void Report::print_row() {
  clear_progress();
  const Result& last = results_.back();
  const Case& c = last.what;
  print_heading(c);
  print(" {:>11} {:>11} {:>5} {:>14} {:>5}{}{}  {}\n", last.bytes, c.count, to_string(c.type), op_name(c),
        root_of(c, settings_.root), held_ ? placement_columns(results_[*held_], settings_.against_mpi) : "",
        placement_columns(last, settings_.against_mpi), last.plan);
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
  if (json_) write_json();
  if (csv_) {
    *csv_ << to_csv(results_);
    close("--csv", settings_.csv_file, *csv_);
  }
}

void Report::write_json() {
  Json rows = Json::array();
  for (const Result& r : results_) {
    const Case& c = r.what;
    Json row = {{"collective", to_string(c.collective)},
                {"backend", c.backend},
                {"size_bytes", r.bytes},
                {"count", c.count},
                {"type", to_string(c.type)},
                {"op", op_name(c)},
                {"root", root_of(c, settings_.root)},
                {"in_place", c.in_place},
                {"time_us", r.ours.time},
                {"p50_us", r.ours.p50},
                {"p99_us", r.ours.p99},
                {"algbw_gb_s", r.algbw},
                {"busbw_gb_s", r.busbw},
                {"wrong", r.wrong ? Json(*r.wrong) : Json()},
                {"iterations", r.iterations},
                {"plan", r.plan}};
    if (settings_.against_mpi) {
      const auto faster = ratio(r);
      row["mpi_time_us"] = r.rival ? Json(r.rival->time) : Json();
      row["mpi_p50_us"] = r.rival ? Json(r.rival->p50) : Json();
      row["mpi_p99_us"] = r.rival ? Json(r.rival->p99) : Json();
      row["mpi_over_ours"] = faster ? Json(*faster) : Json();
    }
    rows.push_back(std::move(row));
  }
  Json report = {{"setting",
                  {{"library", setting_.library},
                   {"ranks", setting_.ranks},
                   {"transport", setting_.transport},
                   {"host", setting_.host},
                   {"cores", setting_.cores},
                   {"mpi", setting_.mpi},
                   {"compiler", setting_.compiler},
                   {"date", setting_.date},
                   {"command", setting_.command}}},
                 {"results", std::move(rows)},
                 {"wrong", total_wrong(results_)}};
  if (settings_.against_mpi) {
    Json means = Json::object();
    for (const auto& [name, values] : ratios(results_)) means[name] = geometric_mean(values);
    report["mpi_over_ours_geometric_mean"] = std::move(means);
  }
  *json_ << report.dump(2) << '\n';
  close("--json", settings_.json_file, *json_);
}

std::string to_csv(const std::vector<Result>& results) {
  std::string text =
      "collective,backend,size_bytes,count,type,op,placement,time_us,p50_us,p99_us,algbw_gb_s,busbw_gb_s,wrong,"
      "iterations,mpi_time_us,mpi_over_ours,plan\n";
  for (const Result& r : results) {
    const auto faster = ratio(r);
    text += fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{},{},{},{},{}\n",
                        to_string(r.what.collective), r.what.backend, r.bytes, r.what.count, to_string(r.what.type),
                        op_name(r.what), r.what.in_place ? "in_place" : "out_of_place", r.ours.time, r.ours.p50,
                        r.ours.p99, r.algbw, r.busbw, r.wrong ? fmt::format("{}", *r.wrong) : "", r.iterations,
                        r.rival ? fmt::format("{:.3f}", r.rival->time) : "",
                        faster ? fmt::format("{:.4f}", *faster) : "", r.plan);
  }
  return text;
}

}  // namespace collectives::bench
