// Functions that parse rates and times on command lines: "100gbit", "12.5GB", "5us".
#pragma once

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace collectives {

/// Parses a number, which may have decimals, and a unit. Returns the number times the factor of the unit. Capital and
/// small letters are equal. Returns nothing for other texts.
inline std::optional<double> parse_unit(std::string_view text,
                                        std::initializer_list<std::pair<std::string_view, double>> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string unit(text.substr(static_cast<std::size_t>(end - text.data())));
  for (char& c : unit) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [name, worth] : units)
    if (unit == name) return number * worth;
  return std::nullopt;
}

/// Parses a rate and returns it as microseconds per byte. Units are kbit, mbit, gbit and tbit for bits per second, and
/// kb, mb, gb and tb for bytes per second. The prefixes are powers of 1000. "/s" may follow the unit. Returns nothing
/// for other texts, and for rates that are not above zero.
inline std::optional<double> parse_rate(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  const auto bytes_per_us = parse_unit(text, {{"kbit", 1e3 / 8e6},
                                              {"mbit", 1e6 / 8e6},
                                              {"gbit", 1e9 / 8e6},
                                              {"tbit", 1e12 / 8e6},
                                              {"kb", 1e-3},
                                              {"mb", 1},
                                              {"gb", 1e3},
                                              {"tb", 1e6}});
  if (!bytes_per_us || *bytes_per_us <= 0) return std::nullopt;
  return 1 / *bytes_per_us;
}

/// Parses a time in ns, us, ms or s and returns microseconds. Returns nothing for other texts and negative times.
inline std::optional<double> parse_us(std::string_view text) {
  const auto us = parse_unit(text, {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}});
  if (!us || *us < 0) return std::nullopt;
  return us;
}

}  // namespace collectives
