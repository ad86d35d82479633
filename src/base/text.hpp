// Numbers of bytes and lists of ranks in readable form: "64 MiB", "ranks 0-2, 4".
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// Returns whether a character would end a line or control a terminal. Bytes above 127 return false, because they may
/// be letters in UTF-8.
inline bool is_control(char c) noexcept { return (c >= 0 && c < ' ') || c == 127; }

inline std::string bytes_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

/// Returns "rank 3" or "ranks 0-2, 5". `ranks` must be ascending.
inline std::string ranks_text(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace collectives
