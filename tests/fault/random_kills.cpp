// Kills ranks of many small jobs at random times, and judges the survivors. Prints one line for each trial, so that a
// run can be resumed.
//
//   random_kills [--seed S] [--first T] [--trials N] [--json FILE] [--wire NAME]... [--quiet]
//
// Exits with 1 if a trial has a fault. --json appends one line for each trial to FILE.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "fault/kill_trial.hpp"

namespace collectives::testing {
namespace {

struct Arguments {
  std::uint64_t seed = 1, first = 0, trials = 100;
  std::string json;
  std::vector<KillWire> wires;
  bool quiet = false;
};

constexpr KillWire kAllWires[] = {KillWire::shared_memory, KillWire::tcp, KillWire::tcp_without_datagrams,
#ifdef COLLECTIVES_TEST_UCX
                                  KillWire::ucx,
#endif
                                  KillWire::mixed};

bool read(int argc, char** argv, Arguments& to) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quiet") {
      to.quiet = true;
      continue;
    }
    const char* const value = ++i < argc ? argv[i] : nullptr;
    if (value == nullptr) return false;
    if (name == "--seed") {
      to.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--first") {
      to.first = std::strtoull(value, nullptr, 10);
    } else if (name == "--trials") {
      to.trials = std::strtoull(value, nullptr, 10);
    } else if (name == "--json") {
      to.json = value;
    } else if (name == "--wire") {
      const auto found = std::ranges::find_if(kAllWires, [&](KillWire wire) { return to_string(wire) == value; });
      if (found == std::end(kAllWires)) return false;
      to.wires.push_back(*found);
    } else {
      return false;
    }
  }
  if (to.wires.empty()) to.wires.assign(std::begin(kAllWires), std::end(kAllWires));
  return true;
}

/// Corrected seconds until the error, of all survivors of trials with one wire and one phase.
class Table {
 public:
  void add(const KillTrial& trial, const KillVerdict& verdict) {
    for (const Survivor& survivor : verdict.survivors) {
      const std::string when =
          survivor.before_rendezvous ? "start, before all ranks have joined" : std::string(to_string(trial.phase));
      seconds_[fmt::format("{:22} {}", to_string(trial.wire), when)].push_back(survivor.corrected);
    }
  }
  void print() {
    fmt::print("{:60} survivors   median     95 %      99 %  greatest (s)\n", "");
    for (auto& [name, seconds] : seconds_) {
      std::ranges::sort(seconds);
      const auto at = [&](double share) {
        return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))];
      };
      fmt::print("{:60} {:9} {:8.4f} {:8.4f} {:8.4f} {:8.4f}\n", name, seconds.size(), at(0.5), at(0.95), at(0.99),
                 at(1));
    }
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
};

void write_json(std::FILE* file, const KillTrial& trial, const KillVerdict& verdict) {
  std::vector<std::string> survivors;
  for (const Survivor& one : verdict.survivors)
    survivors.push_back(fmt::format(R"({{"seconds": {:.6f}, "corrected": {:.6f}, "before_rendezvous": {}}})",
                                    one.seconds, one.corrected, one.before_rendezvous));
  fmt::print(file,
             R"({{"seed": {}, "trial": {}, "wire": "{}", "phase": "{}", "ranks": {}, "victims": [{}], "faults": {}, )"
             R"("survivors": [{}]}})"
             "\n",
             trial.seed, trial.index, to_string(trial.wire), to_string(trial.phase), trial.ranks(),
             fmt::join(trial.victims, ", "), verdict.faults.size(), fmt::join(survivors, ", "));
  std::fflush(file);
}

int run(const Arguments& arguments) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Sleeper sleeper(std::chrono::milliseconds(2));
  std::FILE* const json = arguments.json.empty() ? nullptr : std::fopen(arguments.json.c_str(), "a");
  if (!arguments.json.empty() && json == nullptr) return fmt::print(stderr, "cannot write {}\n", arguments.json), 2;
  Table table;
  std::uint64_t bad = 0;
  for (std::uint64_t index = arguments.first; index < arguments.first + arguments.trials; ++index) {
    const KillTrial trial = draw_trial(arguments.seed, index, arguments.wires);
    const KillVerdict verdict = run_trial(trial, sleeper);
    if (!verdict.faults.empty() || !arguments.quiet)
      fmt::print("{}: {}\n", trial.text(),
                 verdict.faults.empty() ? "ok" : fmt::format("{}", fmt::join(verdict.faults, "; ")));
    if (!verdict.output.empty()) fmt::print("output of the ranks:\n{}\n", verdict.output);
    std::fflush(stdout);
    bad += verdict.faults.empty() ? 0U : 1U;
    table.add(trial, verdict);
    if (json != nullptr) write_json(json, trial, verdict);
  }
  table.print();
  fmt::print("{} trials, {} with faults; a sleeper was late by {:.3f} s at most\n", arguments.trials, bad,
             sleeper.greatest_lateness());
  if (json != nullptr) std::fclose(json);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace collectives::testing

int main(int argc, char** argv) {
  collectives::testing::Arguments arguments;
  if (!collectives::testing::read(argc, argv, arguments))
    return std::fprintf(stderr,
                        "usage: random_kills [--seed S] [--first T] [--trials N] [--json FILE] [--wire NAME]... "
                        "[--quiet]\n"),
           2;
  return collectives::testing::run(arguments);
}
