// Functions that make texts for error messages and logs, such as "64 MiB" for a number of bytes and "ranks 0-2, 4" for
// a list of ranks. Other functions remove bytes that control a terminal from texts of other processes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// Returns the number of bytes of the first character of `text`, which must not be empty. Returns 0 if `text` does not
/// begin with a valid UTF-8 character. Also returns 0 for characters that end a line or control a terminal: U+0000 to
/// U+001F and U+007F to U+009F.
inline std::size_t printable_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= ' ' && first != 127 ? 1 : 0;
  const std::size_t length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return first == 0xc2 && byte(1) < 0xa0 ? 0 : length;
}

/// Replaces each byte of `text` that belongs to no printable UTF-8 character by a space. Keeps the bytes that `except`
/// lists. The library applies this function to texts of other processes and of files before it writes them to a
/// terminal, a log or an error.
inline void make_printable(char* text, std::size_t bytes, std::string_view except = {}) noexcept {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t length = printable_length({text + at, bytes - at});
    if (length == 0 && except.find(text[at]) == except.npos) text[at] = ' ';
    at += std::max<std::size_t>(length, 1);
  }
}

/// Returns at most `most` bytes of `text`, as make_printable() changes them. A longer text ends in "...".
inline std::string printable_text(std::string_view text, std::size_t most = 1024) {
  std::string kept(text.substr(0, most));
  make_printable(kept.data(), kept.size());
  if (text.size() > most) kept += "...";
  return kept;
}

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
