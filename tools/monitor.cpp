// Implementation of `collectives_info watch`. Each process that uses the library has a process page: shared memory with
// counters and the last operations of its communicators. This file finds the pages through /proc/PID/fd, copies them,
// and prints the copies. A page of another user may contain any bytes, so read_page() replaces bytes that are not
// printable.
#include "tools/monitor.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/json.hpp"
#include "base/sealed_file.hpp"
#include "base/text.hpp"
#include "monitoring/flight_recorder.hpp"
#include "monitoring/process_page.hpp"

namespace collectives {
namespace {

using Json = nlohmann::ordered_json;

using PageCopy = std::unique_ptr<const ProcessPage>;

struct Process {
  int pid = 0;
  std::string command;
  PageCopy page;
};

/// Returns the id that the process `pid` has inside its own PID namespace. In a container, this id differs from `pid`.
int own_number_of(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(6));
    int last = pid;
    while (numbers >> last) continue;
    return last;
  }
  return pid;
}

/// Returns the names of the files in a directory. If the directory is unreadable, sets errno and returns nothing.
std::optional<std::vector<std::string>> names_in(const std::string& path) {
  DIR* const directory = ::opendir(path.c_str());
  if (directory == nullptr) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  ::closedir(directory);
  return names;
}

/// Returns the number that `name` consists of. Returns nothing if `name` has other characters.
std::optional<int> number_in(std::string_view name) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

/// Returns a copy of the process page if descriptor `number` of process `pid` refers to one. Otherwise returns null.
/// Also returns null for a page that a forked child has inherited, and for one of another version. In the last case,
/// sets `refused`.
PageCopy page_at(int number, int pid, std::string& refused) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  char target[64];
  const ssize_t letters = ::readlink(path.c_str(), target, sizeof target);
  if (letters < 0 || !std::string_view(target, static_cast<std::size_t>(letters))
                          .starts_with(fmt::format("/memfd:{}", ProcessPage::kName)))
    return nullptr;
  const OpenedSealedFile opened = open_sealed_file(pid, number, O_RDONLY);
  if (!opened.file) return nullptr;
  auto page = std::make_unique<ProcessPage>();
  const PageState state = read_page(opened.file.fd(), *page);
  if (state == PageState::other_version) refused = "its library is of another version";
  return state == PageState::page && page->process == own_number_of(pid) ? std::move(page) : nullptr;
}

/// Returns a copy of the page of a process, or null if the process has no readable page. If the system refuses to list
/// the descriptors of the process, stores the reason in `refused`.
PageCopy page_of(int pid, std::string& refused) {
  const std::string directory = fmt::format("/proc/{}/fd", pid);
  const auto descriptors = names_in(directory);
  if (!descriptors) refused = fmt::format("{}: {}", directory, std::strerror(errno));
  for (const std::string& name : descriptors.value_or(std::vector<std::string>{}))
    if (const auto descriptor = number_in(name))
      if (PageCopy page = page_at(*descriptor, pid, refused)) return page;
  return nullptr;
}

std::vector<Process> processes() {
  std::vector<Process> found;
  for (const std::string& name : names_in("/proc").value_or(std::vector<std::string>{})) {
    const auto pid = number_in(name);
    if (!pid) continue;
    std::string refused, command;
    PageCopy page = page_of(*pid, refused);
    if (page == nullptr) continue;
    std::ifstream file(fmt::format("/proc/{}/comm", *pid));
    std::getline(file, command);
    found.push_back({*pid, printable_text(command), std::move(page)});
  }
  std::ranges::sort(found, {}, &Process::pid);
  return found;
}

template <class Visit>
void for_each_communicator(const Process& process, Visit&& visit) {
  for (const CommunicatorBlock& block : process.page->blocks)
    if (block.used.load(std::memory_order_acquire) != 0) visit(block);
}

std::string seconds_text(std::uint64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  return seconds >= 1      ? fmt::format("{:.2f} s", seconds)
         : seconds >= 1e-3 ? fmt::format("{:.2f} ms", seconds * 1e3)
                           : fmt::format("{:.1f} us", seconds * 1e6);
}

/// Returns the operation that was started last, and the number of operations queued behind it.
std::string last_operation(const CommunicatorBlock& block, const TickScale& scale) {
  OperationEntry entry;
  char space[256];
  if (block.started == 0 || !copy_entry(block, block.started, entry)) return "no operation yet";
  const std::uint64_t behind = block.issued - std::min(block.issued, block.started);
  return fmt::format("{}{}", operation_text(entry, scale, space),
                     behind == 0 ? "" : fmt::format("; {} more behind it", behind));
}

void print_totals(const Process& process) {
  const TickScale scale(process.page->begun);
  for_each_communicator(process, [&](const CommunicatorBlock& block) {
    fmt::print("process {} ({}), communicator {}: rank {} of {}, {} host{}, {}, backend {}\n", process.pid,
               process.command, block.used.load(std::memory_order_relaxed), block.rank, block.size, block.hosts,
               block.hosts == 1 ? "" : "s", block.transport, block.backend);
    fmt::print("  {:<16} {:>12} {:>12} {:>12} {:>12}\n", "collective", "calls", "bytes", "time", "waiting");
    for (const Collective collective : kCollectives) {
      const CollectiveTotals totals = block.totals[static_cast<std::size_t>(collective)];
      if (totals.calls == 0 && totals.waiting_ticks == 0) continue;
      fmt::print("  {:<16} {:>12} {:>12} {:>12} {:>12}\n", to_string(collective), totals.calls,
                 bytes_text(totals.bytes), seconds_text(scale.length(totals.ticks)),
                 seconds_text(scale.length(totals.waiting_ticks)));
    }
    fmt::print("  {}\n", last_operation(block, scale));
  });
}

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

/// Returns an operation as JSON, without the fields that are unknown.
Json json_of(const OperationEntry& entry, const TickScale& scale) {
  const auto text = [](const auto& space) { return std::string(space, ::strnlen(space, sizeof space)); };
  const auto state = static_cast<OperationRecord::State>(entry.state);
  Json operation = {{"sequence", entry.sequence.load(std::memory_order_relaxed)},
                    {"collective", to_string(static_cast<Collective>(entry.shape.collective))},
                    {"count", entry.shape.count},
                    {"type", to_string(static_cast<DataType>(entry.shape.type))},
                    {"op", to_string(static_cast<ReduceOp::Kind>(entry.shape.op))},
                    {"plan", text(entry.shape.plan)},
                    {"tensor", text(entry.name)},
                    {"state", to_string(state)}};
  if (entry.waits_for != kNoRank) {
    operation["waits_for"] = entry.waits_for;
    operation["missing"] = entry.missing;
  }
  if (entry.started == 0) return operation;
  const std::uint64_t began = scale.at(entry.started), now = steady_nanoseconds();
  operation["started_seconds_ago"] = seconds(now - std::min(began, now));
  if (entry.finished != 0) operation["seconds"] = seconds(scale.length(entry.finished - entry.started));
  return operation;
}

/// Prints as JSON what print_totals() prints as a text, with unrounded numbers.
void print_json(const std::vector<Process>& processes) {
  Json all = Json::array();
  for (const Process& process : processes) {
    const TickScale scale(process.page->begun);
    Json communicators = Json::array();
    for_each_communicator(process, [&](const CommunicatorBlock& block) {
      Json collectives = Json::object();
      for (const Collective collective : kCollectives) {
        const CollectiveTotals totals = block.totals[static_cast<std::size_t>(collective)];
        if (totals.calls == 0 && totals.waiting_ticks == 0) continue;
        collectives[std::string(to_string(collective))] = {
            {"calls", totals.calls},
            {"bytes", totals.bytes},
            {"seconds", seconds(scale.length(totals.ticks))},
            {"waiting_seconds", seconds(scale.length(totals.waiting_ticks))}};
      }
      Json one = {{"communicator", block.used.load(std::memory_order_relaxed)},
                  {"rank", block.rank},
                  {"size", block.size},
                  {"hosts", block.hosts},
                  {"transport", block.transport},
                  {"backend", block.backend},
                  {"issued", block.issued},
                  {"started", block.started},
                  {"collectives", std::move(collectives)}};
      OperationEntry entry;
      if (block.started != 0 && copy_entry(block, block.started, entry)) one["last_operation"] = json_of(entry, scale);
      communicators.push_back(std::move(one));
    });
    all.push_back(
        {{"process", process.pid}, {"program", process.command}, {"communicators", std::move(communicators)}});
  }
  // Names of tensors may be invalid UTF-8, because they are cut to a length.
  fmt::print("{}\n", json_text(all, 2));
}

/// Counters of a communicator at one time, added over all collectives.
struct Reading {
  std::uint64_t calls = 0, bytes = 0, ticks = 0, waiting = 0;
};

Reading read(const CommunicatorBlock& block) {
  Reading sum;
  for (const CollectiveTotals& one : block.totals) {
    sum.calls += one.calls;
    sum.bytes += one.bytes;
    sum.ticks += one.ticks;
    sum.waiting += one.waiting_ticks;
  }
  return sum;
}

/// Readings by process id and number of the communicator.
using Readings = std::map<std::pair<int, std::uint32_t>, Reading>;

void print_rates(const Process& process, double seconds, const Readings& before, Readings& now) {
  const TickScale scale(process.page->begun);
  const auto share = [&](std::uint64_t ticks) {
    return fmt::format("{:.0f} %", static_cast<double>(scale.length(ticks)) / seconds / 1e7);
  };
  for_each_communicator(process, [&](const CommunicatorBlock& block) {
    const std::uint32_t number = block.used.load(std::memory_order_relaxed);
    const Reading sum = now[{process.pid, number}] = read(block);
    const auto found = before.find({process.pid, number});
    const Reading old = found == before.end() ? sum : found->second;
    fmt::print(
        "{:>8} {:<15} {:>4} {:>10} {:>10.0f} {:>10}/s {:>8} {:>8}  {}\n", process.pid, process.command, number,
        fmt::format("{} of {}", block.rank, block.size), static_cast<double>(sum.calls - old.calls) / seconds,
        bytes_text(static_cast<std::size_t>(std::min(static_cast<double>(sum.bytes - old.bytes) / seconds, 9e18))),
        share(sum.ticks - old.ticks), share(sum.waiting - old.waiting), last_operation(block, scale));
  });
}

/// Returns the process with this id, or all processes if `pid` is 0.
std::vector<Process> processes(int pid) {
  std::vector<Process> all = processes();
  if (pid != 0) std::erase_if(all, [&](const Process& process) { return process.pid != pid; });
  return all;
}

[[noreturn]] void refuse(int pid) {
  if (pid == 0) throw std::invalid_argument("no process here that this user may look at has a communicator");
  std::string refused;
  page_of(pid, refused);
  throw std::invalid_argument(refused.empty() ? fmt::format("process {} has no communicator to watch", pid)
                                              : fmt::format("process {} cannot be watched: {}", pid, refused));
}

}  // namespace

void answer(const MonitorOptions& question) {
  const auto interval = parse_duration(question.interval);
  if (!interval || *interval > std::chrono::hours(24))
    throw std::invalid_argument(
        fmt::format("--interval '{}' is no time between two looks; valid: 500ms, 2s, 1min", question.interval));
  std::vector<Process> now = processes(question.pid);
  if (now.empty() && (question.once || question.json || question.pid != 0)) refuse(question.pid);
  if (question.json) return print_json(now);
  if (question.once) {
    for (const Process& process : now) print_totals(process);
    return;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  Readings before;
  auto checked = std::chrono::steady_clock::now();
  for (double seconds = 1; question.pid == 0 || !now.empty(); now = processes(question.pid)) {
    if (terminal) fmt::print("\033[H\033[2J");
    fmt::print("{:>8} {:<15} {:>4} {:>10} {:>10} {:>12} {:>8} {:>8}  {}\n", "process", "program", "comm", "rank",
               "calls/s", "bytes", "in calls", "waiting", "last operation");
    Readings readings;
    for (const Process& process : now) print_rates(process, seconds, before, readings);
    std::fflush(stdout);
    before = std::move(readings);
    std::this_thread::sleep_for(*interval);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - checked).count();
    checked = std::chrono::steady_clock::now();
  }
  fmt::print("process {} has ended\n", question.pid);
}

}  // namespace collectives
