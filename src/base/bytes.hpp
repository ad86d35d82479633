// Parser of numbers of bytes that users write on command lines and in environment variables. Example: "64M" is
// 67108864.
#pragma once

#include <cctype>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace collectives {

/// Parses a whole number of bytes. A suffix K, M, G or T multiplies the number by 1024, 1024^2, 1024^3 or 1024^4. The
/// suffixes "KiB" and "KB" mean the same as "K". Returns nothing for other texts, and for numbers that size_t cannot
/// hold.
inline std::optional<std::size_t> parse_bytes(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.begin()));
  if (unit.empty() || unit == "B") return number;
  const std::size_t power =
      std::string_view("BKMGT").find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front()))));
  const std::string_view rest = unit.substr(1);
  if (power == 0 || power == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB")) {
    return std::nullopt;
  }
  const auto shift = static_cast<unsigned>(10 * power);
  if (number > (std::numeric_limits<std::size_t>::max() >> shift)) return std::nullopt;
  return number << shift;
}

}  // namespace collectives
