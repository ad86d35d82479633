// Program that gives mutated inputs to the parsers of the library and reports the outcomes. The exit status is 1 if a
// parser has a fault.
//
//   mutation_program [--count N] [--seed S] [--first NUMBER] [--target NAME] [--list]
//
// --count is the number of inputs of all targets together. Slow parsers get fewer of them. An input follows from its
// seed, its target and its number. --first leaves out the inputs with lower numbers. A run can therefore be divided:
//
//   mutation_program --count 5000000 && mutation_program --count 5000000 --first 5000000
//
// With --target, both numbers are those of one target. A report of a fault names its input in this form.
//
// tests/fault/parser_coverage.sh prints the lines of each parser that the inputs reach.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "fault/mutations.hpp"

int main(int argc, char** argv) {
  using namespace collectives::testing;
  collectives::set_log_level(collectives::LogLevel::off);
  MutationOptions options{.count = 16'000};
  std::string only;
  const auto usage = [](int status = 2) {
    std::fprintf(status == 0 ? stdout : stderr,
                 "usage: mutation_program [--count N] [--seed S] [--first NUMBER] [--target NAME] [--list] [--help]\n");
    return status;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help") return usage(0);
    if (flag == "--list") {
      for (const MutationTarget& target : mutation_targets()) std::printf("%s\n", target.name.c_str());
      return 0;
    }
    if (i + 1 == argc) return usage();
    const std::string_view value = argv[++i];
    if (flag == "--target") {
      only = value;
      continue;
    }
    std::uint64_t* const number = flag == "--count"   ? &options.count
                                  : flag == "--seed"  ? &options.seed
                                  : flag == "--first" ? &options.first
                                                      : nullptr;
    if (number == nullptr ||
        std::from_chars(value.data(), value.data() + value.size(), *number).ptr != value.data() + value.size())
      return usage();
  }
  bool found = false, faults = false;
  std::uint64_t inputs = 0;
  double seconds = 0;
  const std::vector<MutationTarget> targets = mutation_targets();
  for (const MutationTarget& target : targets) {
    if (!only.empty() && target.name != only) continue;
    found = true;
    const MutationOptions mine = only.empty() ? share_of(target, targets, options) : options;
    const MutationReport report = run_mutations(target, mine);
    inputs += mine.count;
    seconds += report.seconds;
    faults = faults || !report.faults.empty();
    std::printf("%s\n", report_text(target, report).c_str());
    std::fflush(stdout);
  }
  if (!found) return usage();
  std::printf("%llu inputs in %.1f s\n", static_cast<unsigned long long>(inputs), seconds);
  return faults ? 1 : 0;
}
