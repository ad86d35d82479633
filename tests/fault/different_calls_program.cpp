// Tries pairs of different calls by hand, and prints counts and times. Exits with 1 if a pair is not reported as it
// should be.
//
//   different_calls_program [KEY=VALUE...]
//     wire=NAME           wire between hosts: tcp, ucx, queue; by default the library's choice
//     first=N cells=N     tries N cells from cell N on, by default all
//     stride=N            tries only every N-th pair, by default 1
//     timeout=SECONDS     deadline of each call, by default 20
//     shown=N             faults that are printed in full, by default 20
//     match=TEXT          tries only cells whose description contains TEXT
//     calls=REGEX         tries only calls whose whole title matches REGEX
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "fault/call_pairs.hpp"

namespace collectives::testing {
namespace {

using Arguments = std::map<std::string, std::string>;
Arguments arguments{{"wire", ""},    {"first", "0"}, {"cells", "1000000"}, {"timeout", "20"},
                    {"shown", "20"}, {"match", ""},  {"stride", "1"},      {"calls", ".*"}};

std::size_t number(const char* key) { return std::strtoul(arguments[key].c_str(), nullptr, 10); }

bool read(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], key = argument.substr(0, argument.find('='));
    if (!arguments.contains(key) || argument.size() == key.size()) return false;
    arguments[key] = argument.substr(key.size() + 1);
  }
  return true;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Tries the cells that the arguments select. Prints a line for each, and the first faults.
Tried try_cells() {
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::strtod(arguments["timeout"].c_str(), nullptr)));
  const std::regex calls(arguments["calls"]);
  const auto tries = [&](std::size_t call) {
    return std::regex_match(std::string(different_calls()[call].title), calls);
  };
  std::vector<CallPair> pairs;
  for (const CallPair& pair : all_call_pairs())
    if ((pair.first * 31 + pair.second) % std::max(number("stride"), std::size_t{1}) == 0 && tries(pair.first) &&
        tries(pair.second))
      pairs.push_back(pair);
  const std::vector<Cell> cells = all_cells(arguments["wire"]);
  const std::size_t end = std::min(cells.size(), number("first") + number("cells"));
  Tried all;
  for (std::size_t i = number("first"); i < end; ++i) {
    if (cells[i].text().find(arguments["match"]) == std::string::npos) continue;
    const auto began = std::chrono::steady_clock::now();
    Tried tried = try_pairs(cells[i], pairs, timeout);
    std::printf("cell %zu (%s): %zu pairs, %zu refused alike, %zu faults, %.1f s\n", i, cells[i].text().c_str(),
                tried.pairs, tried.refused_alike, tried.faults.size(), seconds_since(began));
    for (std::size_t n = 0; n < tried.faults.size() && all.faults.size() + n < number("shown"); ++n)
      std::printf("%s\n", tried.faults[n].c_str());
    std::fflush(stdout);
    all.add(std::move(tried));
  }
  return all;
}

}  // namespace
}  // namespace collectives::testing

int main(int argc, char** argv) {
  using namespace collectives::testing;
  if (!read(argc, argv)) return std::fprintf(stderr, "an argument is unknown\n"), 2;
  const auto began = std::chrono::steady_clock::now();
  Tried all = try_cells();
  std::ranges::sort(all.seconds);
  const auto quantile = [&](double share) {
    const double last = static_cast<double>(all.seconds.size()) - 1;
    return all.seconds.empty() ? 0 : all.seconds[static_cast<std::size_t>(share * last)];
  };
  std::printf("%zu calls, %zu pairs tried, %zu refused alike, %zu faults, %.1f s\n", different_calls().size(),
              all.pairs, all.refused_alike, all.faults.size(), seconds_since(began));
  std::printf("seconds from the call to the error: median %.4f, 99 %% %.4f, 99.9 %% %.4f, greatest %.4f\n",
              quantile(0.5), quantile(0.99), quantile(0.999), quantile(1));
  return all.faults.empty() ? 0 : 1;
}
