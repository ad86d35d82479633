// Values of options on the command line of collectives_bench and its sub-command: lists, sizes, numbers and the word
// "all". Every error is BadArguments with one line, which names the valid values.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives_bench/options.hpp"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace collectives::bench {

inline constexpr int kMostRanks = 4096;
inline constexpr std::size_t kMostCalls = 10'000'000;
inline constexpr double kMostSeconds = 3600;

/// Returns the types of the library whose results the benchmark can verify: all but complex numbers and pairs.
std::vector<DataType> verified_types();
/// Returns the ops of the library that a verified type has.
std::vector<ReduceOp::Kind> verified_ops();

/// Returns the names of values, with commas between them.
std::string names_of(auto&& values) {
  return fmt::format("{}", fmt::join(values | std::views::transform([](auto one) { return to_string(one); }), ", "));
}

/// Returns the items of a list, which commas separate.
std::vector<std::string_view> split_list(std::string_view list);

/// Returns the values of `known` that `list` names, in the order of `list`. "all" names every value.
template <class T>
std::vector<T> choose(std::string_view flag, std::string_view list, std::span<const T> known) {
  std::vector<T> chosen;
  for (const std::string_view item : split_list(list)) {
    if (item == "all") return {known.begin(), known.end()};
    const auto found = std::ranges::find(known, item, [](T value) { return to_string(value); });
    if (found == known.end()) {
      throw BadArguments(fmt::format("{} '{}' is unknown; valid: all, {}", flag, item, names_of(known)));
    }
    if (std::ranges::find(chosen, *found) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

/// Returns the names of backends and algorithms in `list`. Checks each name by asking the library for a plan. The error
/// about an unknown name lists the valid names.
std::vector<std::string> choose_backends(std::string_view list);

/// Parses a number from `least` to `most`. Throws BadArguments for any other text, NaN included.
template <class T>
T number_argument(std::string_view flag, std::string_view text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  constexpr std::string_view kNumbers = std::is_integral_v<T> ? "whole numbers" : "numbers";
  throw BadArguments(fmt::format("{} '{}' is invalid; valid: {} from {} to {}", flag, text, kNumbers, least, most));
}

/// Parses a number of bytes, such as 64K.
std::size_t size_argument(std::string_view flag, std::string_view text);

/// Throws BadArguments if the smallest vector of the settings is longer than the largest. The texts are those of the
/// options.
void check_range(std::string_view min_bytes, std::string_view max_bytes, const Settings& settings);

/// Stores the value of --bootstrap in the settings.
void choose_bootstrap(std::string_view text, Settings& settings);

/// Returns an error of CLI11 as one line. If a flag is unknown, the line lists the known flags.
std::string complaint(const CLI::App& app, const CLI::ParseError& error);

}  // namespace collectives::bench
