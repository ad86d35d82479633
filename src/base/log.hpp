// What the library says on its own: one line on stderr, from level `warning` unless COLLECTIVES_LOG says otherwise.
//
//   log_warning(rank, "{} waits for rank {} since {} s", operation, peer, seconds);
//   -> collectives: warning: rank 3: all_reduce #17 waits for rank 1 since 30 s
//
// A line is one write(), so that lines of different ranks do not mix. Nothing here throws what the caller must handle.
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

/// The level in force: what set_log_level() said last, else COLLECTIVES_LOG as it was at the first line, else warning.
LogLevel log_level() noexcept;
void set_log_level(LogLevel) noexcept;

namespace detail {
/// Writes one line; `rank` is left out when it is kNoRank.
void write_log_line(LogLevel, Rank rank, fmt::string_view format, fmt::format_args) noexcept;

template <class... Args>
void log(LogLevel level, Rank rank, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) write_log_line(level, rank, format, fmt::make_format_args(args...));
}
}  // namespace detail

/// `rank`: who speaks, kNoRank when the line is about no rank in particular.
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
