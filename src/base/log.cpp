// Implementation of the log, which writes lines to stderr. Each line is written by one system call, so that lines of
// different ranks do not mix.
#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <string>

#include "base/environment.hpp"
#include "base/text.hpp"

namespace collectives {
namespace {

constexpr int kUnset = -1;
std::atomic<int> level_in_force = kUnset;

/// Returns the level of COLLECTIVES_LOG, or `warning` if the variable is unset or malformed. The log does not report a
/// malformed variable, because the next communicator reports it as an error.
LogLevel level_from_environment() noexcept {
  try {
    return environment().log.value_or(LogLevel::warning);
  } catch (const std::exception&) {
    return LogLevel::warning;
  }
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::off: return "off";
    case LogLevel::error: return "error";
    case LogLevel::warning: return "warning";
    case LogLevel::info: return "info";
    case LogLevel::debug: return "debug";
  }
  return "unknown level";
}

LogLevel log_level() noexcept {
  int level = level_in_force.load(std::memory_order_relaxed);
  if (level == kUnset) {
    const int found = static_cast<int>(level_from_environment());
    if (level_in_force.compare_exchange_strong(level, found, std::memory_order_relaxed)) level = found;
  }
  return static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) noexcept {
  level_in_force.store(static_cast<int>(level), std::memory_order_relaxed);
}

namespace detail {

void write_log_line(LogLevel level, Rank rank, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    // fmt::format_to() would compile fmt's formatting of all types here, which takes four seconds.
    std::string line = fmt::format("collectives: {}: ", to_string(level));
    if (rank != kNoRank) line += fmt::format("rank {}: ", rank);
    line += fmt::vformat(format, args);
    make_printable(line.data(), line.size());
    line.push_back('\n');
    // Ignores an error of the write, because a closed or full stderr is no reason to fail.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::exception&) {  // out of memory: the line is dropped
  }
}

}  // namespace detail
}  // namespace collectives
