// Implementation of environment.hpp, which reads the environment variables of the library, and properties of the
// machine. The names of the variables begin with COLLECTIVES_. The table kVariables lists each variable with the
// function that parses its value. The second half of the file finds the number of cores, the name of the processor and
// the available memory, mostly in /proc and /sys.
#include "base/environment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

constexpr std::string_view kPrefix = "COLLECTIVES_";
constexpr std::array<std::string_view, 3> kRendezvousVariables = {"COLLECTIVES_PORT", "COLLECTIVES_LISTEN_FD",
                                                                  "COLLECTIVES_JOB"};
// Prefix of variables that only test programs read. The library ignores these variables.
constexpr std::string_view kTestPrefix = "COLLECTIVES_TEST_";
// Prefix of variables that the communication library UCX reads. They configure UCX for this library only. This library
// itself ignores them.
constexpr std::string_view kUcxPrefix = "COLLECTIVES_UCX_";

// Readers: one function read() for each type of values. A reader parses `text`, the value of a variable. If the text is
// valid, the reader stores the result in `value` and returns true.

bool read(std::string_view text, std::optional<std::string>& value) {
  value = text;
  return true;
}

bool read(std::string_view text, std::optional<bool>& value) {
  if (text == "1" || text == "on" || text == "yes" || text == "true") value = true;
  if (text == "0" || text == "off" || text == "no" || text == "false") value = false;
  return value.has_value();
}

bool read(std::string_view text, std::optional<std::chrono::nanoseconds>& value) {
  value = parse_duration(text);
  return value.has_value();
}

bool read(std::string_view text, std::optional<LogLevel>& value) {
  for (const LogLevel level : kLogLevels) {
    if (text == to_string(level)) value = level;
  }
  return value.has_value();
}

bool read(std::string_view text, std::optional<std::size_t>& bytes) {
  bytes = parse_bytes(text);
  return bytes.has_value();
}

bool is_wire(std::string_view text) { return text == "tcp" || text == "ucx" || text == "mpi"; }

std::optional<long> integer(std::string_view text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <int least, int most>
bool read_between(std::string_view text, std::optional<int>& value) {
  const auto number = integer(text);
  if (number && *number >= least && *number <= most) value = static_cast<int>(*number);
  return value.has_value();
}

struct Variable {
  std::string_view name;
  std::string_view valid;
  bool (*read)(std::string_view text, Environment& environment);
};

constexpr std::string_view kSwitch = "on, off, yes, no, true, false, 1, 0";
constexpr std::string_view kBytes = "whole bytes, or with K, M, G: 4096, 64K, 1G";

constexpr std::array kVariables = {
    Variable{"COLLECTIVES_BACKEND", "the name of a backend",
             [](std::string_view text, Environment& e) { return read(text, e.backend); }},
    Variable{"COLLECTIVES_CONGESTION", "a congestion control of the kernel (cubic, bbr, ...), or system",
             [](std::string_view text, Environment& e) { return read(text, e.congestion_control); }},
    Variable{"COLLECTIVES_CORES", "a number of cores from 1 to 65536",
             [](std::string_view text, Environment& e) { return read_between<1, 65536>(text, e.cores); }},
    Variable{"COLLECTIVES_DATAGRAMS", kSwitch,
             [](std::string_view text, Environment& e) { return read(text, e.datagrams); }},
    Variable{"COLLECTIVES_DETERMINISTIC", kSwitch,
             [](std::string_view text, Environment& e) { return read(text, e.deterministic); }},
    Variable{"COLLECTIVES_DOMAIN", "any name",
             [](std::string_view text, Environment& e) { return read(text, e.domain); }},
    Variable{"COLLECTIVES_DUMP_SIGNAL", "USR1, USR2",
             [](std::string_view text, Environment& e) {
               if (text == "USR1") e.dump_signal = SIGUSR1;
               if (text == "USR2") e.dump_signal = SIGUSR2;
               return e.dump_signal.has_value();
             }},
    Variable{"COLLECTIVES_FLIGHT_RECORDER", "what the paths of files begin with",
             [](std::string_view text, Environment& e) { return read(text, e.flight_recorder); }},
    Variable{"COLLECTIVES_GPU_PEERS", kSwitch,
             [](std::string_view text, Environment& e) { return read(text, e.gpu_peers); }},
    Variable{"COLLECTIVES_HOST_ID", "any name",
             [](std::string_view text, Environment& e) { return read(text, e.host_id); }},
    Variable{"COLLECTIVES_INJECT", "a list of faults",
             [](std::string_view text, Environment& e) { return read(text, e.inject); }},
    Variable{"COLLECTIVES_INTERFACE", "interfaces (eth0) or beginnings of addresses (10.77.), with commas between",
             [](std::string_view text, Environment& e) {
               for (std::size_t at = 0; at <= text.size();) {
                 const std::size_t comma = std::min(text.find(',', at), text.size());
                 if (comma == at) return false;
                 e.interfaces.emplace_back(text.substr(at, comma - at));
                 at = comma + 1;
               }
               return true;
             }},
    Variable{"COLLECTIVES_JOB", "any name", [](std::string_view text, Environment& e) { return read(text, e.job); }},
    Variable{"COLLECTIVES_LISTEN_FD", "the number of an open file, from 0 to 1048575",
             [](std::string_view text, Environment& e) { return read_between<0, 1048575>(text, e.listen_fd); }},
    Variable{"COLLECTIVES_LOG", "off, error, warning, info, debug",
             [](std::string_view text, Environment& e) { return read(text, e.log); }},
    Variable{"COLLECTIVES_MPI_AFTER", "a number from 0 to 1000000000: calls, and one more for each 512 bytes",
             [](std::string_view text, Environment& e) { return read_between<0, 1000000000>(text, e.mpi_after); }},
    Variable{"COLLECTIVES_MPI_STATS", kSwitch,
             [](std::string_view text, Environment& e) { return read(text, e.mpi_stats); }},
    Variable{"COLLECTIVES_MPI_WIRE", "bf16",
             [](std::string_view text, Environment& e) { return text == "bf16" && read(text, e.mpi_wire); }},
    Variable{"COLLECTIVES_MPI_WIRE_MIN_BYTES", kBytes,
             [](std::string_view text, Environment& e) { return read(text, e.mpi_wire_min_bytes); }},
    Variable{"COLLECTIVES_PORT", "a port from 1 to 65535",
             [](std::string_view text, Environment& e) { return read_between<1, 65535>(text, e.port); }},
    Variable{"COLLECTIVES_PROGRESS_THREAD", kSwitch,
             [](std::string_view text, Environment& e) { return read(text, e.progress_thread); }},
    Variable{"COLLECTIVES_TIMEOUT", "seconds, or a number with ms, s, min or h; 0 or none for no deadline",
             [](std::string_view text, Environment& e) { return read(text, e.timeout); }},
    Variable{"COLLECTIVES_TRACE", "the path of a file",
             [](std::string_view text, Environment& e) { return read(text, e.trace); }},
    Variable{"COLLECTIVES_TRACE_BYTES", kBytes,
             [](std::string_view text, Environment& e) { return read(text, e.trace_bytes); }},
    Variable{"COLLECTIVES_TRANSPORT", "shared_memory, tcp, ucx, mpi",
             [](std::string_view text,
                Environment& e) { return (text == "shared_memory" || is_wire(text)) && read(text, e.transport); }},
    Variable{"COLLECTIVES_TUNING", "default, or the path of a JSON file",
             [](std::string_view text, Environment& e) { return read(text, e.tuning); }},
    Variable{"COLLECTIVES_WIRE", "tcp, ucx, mpi",
             [](std::string_view text, Environment& e) { return is_wire(text) && read(text, e.wire); }},
};

const Variable* find_variable(std::string_view name) {
  const auto* const found = std::ranges::find(kVariables, name, &Variable::name);
  return found == kVariables.end() ? nullptr : found;
}

/// Calls visit(name, value) for each variable whose name begins with COLLECTIVES_.
template <class Visit>
void for_each_of_ours(const char* const* variables, Visit&& visit) {
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view entry = *variables;
    const std::size_t equals = entry.find('=');
    if (equals != entry.npos && entry.starts_with(kPrefix)) visit(entry.substr(0, equals), entry.substr(equals + 1));
  }
}

/// Returns the minimum number of insertions, deletions and replacements of characters that turn `a` into `b`. Errors
/// about unknown variables use this number to suggest the most similar name.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

/// Returns the contents of a file, or an empty text if the file cannot be read. Does not use std::ifstream, which takes
/// several times as long. The construction of a communicator reads a dozen files.
std::string contents(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  char some[4096];
  for (ssize_t bytes = 0; (bytes = ::read(file, some, sizeof some)) > 0 || (bytes < 0 && errno == EINTR);)
    if (bytes > 0) text.append(some, static_cast<std::size_t>(bytes));
  ::close(file);
  return text;
}

int cores_in_affinity_mask() {
  // A machine may have more cores than cpu_set_t holds. The mask grows until the kernel accepts it.
  for (std::size_t cores = CPU_SETSIZE; cores <= (1 << 20); cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(cores);
    std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t) + 1);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

/// Parses the variables for which wanted(name) is true.
template <class Wanted>
Environment parse(const char* const* variables, Wanted&& wanted) {
  Environment result;
  std::vector<std::string_view> seen;  // if a name occurs twice, its first non-empty value counts
  for_each_of_ours(variables, [&](std::string_view name, std::string_view value) {
    const Variable* variable = find_variable(name);
    if (variable == nullptr || !wanted(name) || value.empty() || std::ranges::count(seen, name) != 0) return;
    seen.push_back(name);
    if (!variable->read(value, result)) {
      throw Error(Errc::invalid_argument, fmt::format("{}={}: valid is {}", name, value, variable->valid));
    }
  });
  return result;
}

}  // namespace

Environment parse_environment(const char* const* variables) {
  return parse(variables, [](std::string_view) { return true; });
}

Environment environment() { return parse_environment(::environ); }

Environment rendezvous_environment() {
  return parse(::environ, [](std::string_view name) { return std::ranges::count(kRendezvousVariables, name) != 0; });
}

std::vector<std::string> unknown_variables(const char* const* variables) {
  std::vector<std::string> unknown;
  for_each_of_ours(variables, [&](std::string_view name, std::string_view) {
    if (find_variable(name) == nullptr && !name.starts_with(kTestPrefix) && !name.starts_with(kUcxPrefix))
      unknown.emplace_back(name);
  });
  return unknown;
}

std::vector<std::string> unknown_variables() { return unknown_variables(::environ); }

std::string unknown_variable_warning(std::string_view name) {
  const auto distance = [name](const Variable& variable) { return edit_distance(name, variable.name); };
  const auto* const nearest = std::ranges::min_element(kVariables, {}, distance);
  std::vector<std::string_view> names;
  std::ranges::transform(kVariables, std::back_inserter(names), &Variable::name);
  return fmt::format("{} is not a variable of this library{}; known are {}", name,
                     distance(*nearest) <= 3 ? fmt::format(", did you mean {}?", nearest->name) : "",
                     fmt::join(names, ", "));
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  using std::chrono::nanoseconds;
  if (text == "none") return nanoseconds::max();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  double seconds = 0;
  if (unit == "ms") {
    seconds = number * 1e-3;
  } else if (unit.empty() || unit == "s") {
    seconds = number;
  } else if (unit == "min") {
    seconds = number * 60;
  } else if (unit == "h") {
    seconds = number * 3600;
  } else {
    return std::nullopt;
  }
  // 0 means no deadline. More than a century counts as no deadline, too, because nanoseconds in 64 bits hold at most
  // 292 years.
  constexpr double kCentury = 100 * 365.25 * 86400;
  if (number == 0 || seconds > kCentury) return nanoseconds::max();
  return std::max(nanoseconds(1), nanoseconds(static_cast<nanoseconds::rep>(seconds * 1e9)));
}

int usable_cores() {
  if (const auto cores = environment().cores) return *cores;
  int cores = cores_in_affinity_mask();
  for (const std::string& directory : control_groups(contents("/proc/self/cgroup"), "cpu")) {
    std::string quota = contents(directory + "/cpu.max");
    if (quota.empty()) quota = contents(directory + "/cpu.cfs_quota_us") + contents(directory + "/cpu.cfs_period_us");
    if (const auto limit = cores_of_quota(quota)) cores = std::min(cores, *limit);
  }
  return std::max(1, cores);
}

std::string nccl_host() {
  if (const char* const said = std::getenv("NCCL_HOSTID"); said != nullptr && *said != '\0') return said;
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string cache_directory() {
  const auto value = [](const char* name) -> std::string {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (std::string directory = value("XDG_CACHE_HOME"); directory.starts_with('/')) return directory;
  const std::string home = value("HOME");
  return home.empty() ? "" : home + "/.cache";
}

std::string cpu_model() {
  if (std::string model = cpu_model(contents("/proc/cpuinfo")); !model.empty()) return model;
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::string cpu_model(std::string_view cpuinfo) {
  std::string model;
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line;
       std::getline(lines, line) && !line.empty();) {  // an empty line ends the entry of the first core
    const std::size_t colon = line.find(": ");
    if (colon == line.npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU ")) model += fmt::format("{}{}", model.empty() ? "CPU " : " ", value);  // as on Arm
  }
  return model;
}

std::optional<int> cores_of_quota(std::string_view quota_and_period) {
  std::istringstream words{std::string(quota_and_period)};
  long quota = 0, period = 0;  // microseconds of processor time in every `period` microseconds
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp(quota / period, 1L, 1L << 20));
}

std::vector<std::string> control_groups(std::string_view text, std::string_view controller) {
  std::vector<std::string> directories;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/path", version 2 "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(fmt::format(",{},", controller)) == controllers.npos) continue;
    const std::string root = version_2 ? "/sys/fs/cgroup" : fmt::format("/sys/fs/cgroup/{}", controller);
    std::string path = line.substr(second + 1);
    while (path.size() > 1) {
      directories.push_back(root + path);
      path.erase(path.rfind('/'));
    }
    directories.push_back(root);
  }
  return directories;
}

AvailableMemory available_memory() {
  AvailableMemory least;
  const auto consider = [&least](std::optional<std::size_t> bytes, auto&& bound) {
    if (bytes && *bytes < least.bytes) least = {*bytes, bound(bytes_text(*bytes))};
  };
  consider(available_on_machine(contents("/proc/meminfo")),
           [](const std::string& left) { return fmt::format("the machine has {} left", left); });
  for (const std::string& directory : control_groups(contents("/proc/self/cgroup"), "memory")) {
    for (const auto& [limit, usage] :
         {std::pair("memory.max", "memory.current"),  // the files of cgroup version 2, then those of version 1
          std::pair("memory.limit_in_bytes", "memory.usage_in_bytes")}) {
      const std::string path = fmt::format("{}/{}", directory, limit), allowed = contents(path);
      if (!limit_of_group(allowed)) continue;  // skips the statistics, for which the kernel needs some time
      consider(available_in_group(allowed, contents(fmt::format("{}/{}", directory, usage)),
                                  contents(directory + "/memory.stat")),
               [&](const std::string& left) {
                 return fmt::format("the memory limit of this control group leaves {} (raise {})", left, path);
               });
    }
  }
  return least;
}

std::optional<std::size_t> limit_of_group(std::string_view limit) {
  // Version 1 reports 2^63 minus one page if there is no limit.
  constexpr std::size_t kNone = std::size_t{1} << 62;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), bytes);
  return error == std::errc{} && bytes < kNone ? std::optional(bytes) : std::nullopt;
}

std::optional<std::size_t> available_in_group(std::string_view limit, std::string_view usage,
                                              std::string_view statistics) {
  const std::optional<std::size_t> allowed = limit_of_group(limit);
  std::size_t used = 0, files = 0;
  if (!allowed || !(std::istringstream{std::string(usage)} >> used)) return std::nullopt;
  // Version 1 includes nested groups only in names with the prefix "total_". Version 2 always includes them.
  const bool version_1 = statistics.find("total_inactive_file ") != statistics.npos;
  std::istringstream lines{std::string(statistics)};
  std::size_t bytes = 0;
  for (std::string name; lines >> name >> bytes;) {
    if (version_1 ? name == "total_inactive_file" || name == "total_active_file"
                  : name == "inactive_file" || name == "active_file")
      files += bytes;
  }
  used -= std::min(used, files);
  return *allowed - std::min(*allowed, used);
}

std::optional<std::size_t> available_on_machine(std::string_view meminfo) {
  std::optional<std::size_t> available;
  std::size_t swap = 0, kib = 0;
  std::istringstream lines{std::string(meminfo)};
  for (std::string line; std::getline(lines, line);) {  // "MemAvailable:   23134364 kB"
    std::istringstream words(line);
    std::string name;
    if (!(words >> name >> kib)) continue;
    if (name == "MemAvailable:") available = kib << 10;
    if (name == "SwapFree:") swap = kib << 10;
  }
  return available ? std::optional(*available + swap) : std::nullopt;
}

}  // namespace collectives
