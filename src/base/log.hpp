// Log of the library: lines on stderr. By default, the library writes warnings and errors. COLLECTIVES_LOG and
// set_log_level() set other levels.
//
//   log_warning(rank, "{} waits for rank {} since {} s", operation, peer, seconds);
//   -> collectives: warning: rank 3: all_reduce #17 waits for rank 1 since 30 s
//
// Each line is one write(), so that lines of different ranks do not mix. No function here throws.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives {

enum class LogLevel : std::uint8_t { off, error, warning, info, debug };

inline constexpr LogLevel kLogLevels[] = {LogLevel::off, LogLevel::error, LogLevel::warning, LogLevel::info,
                                          LogLevel::debug};

std::string_view to_string(LogLevel) noexcept;

/// Returns the current level, which is the last argument of set_log_level(). If set_log_level() was never called, the
/// level is the value of COLLECTIVES_LOG at the first call of log_level(). If the variable was unset or malformed at
/// that time, the level is `warning`.
LogLevel log_level() noexcept;
void set_log_level(LogLevel) noexcept;

namespace detail {
/// Writes one line. The line names `rank`, unless `rank` is kNoRank.
void write_log_line(LogLevel, Rank rank, fmt::string_view format, fmt::format_args) noexcept;

template <class... Args>
void log(LogLevel level, Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) write_log_line(level, rank, format, fmt::make_format_args(args...));
}
}  // namespace detail

/// Logs a line for `rank`, or for no particular rank if `rank` is kNoRank.
template <class... Args>
void log_error(Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::error, rank, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::warning, rank, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::info, rank, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::debug, rank, format, std::forward<Args>(args)...);
}

}  // namespace collectives
