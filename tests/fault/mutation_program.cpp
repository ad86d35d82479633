// Program that gives mutated inputs to the parsers of the library and reports the outcomes. The exit status is 1 if a
// parser has a fault.
//
//   mutation_program [--count N] [--seed S] [--first NUMBER] [--target NAME] [--list]
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "fault/mutations.hpp"

int main(int argc, char** argv) {
  using namespace collectives::testing;
  collectives::set_log_level(collectives::LogLevel::off);
  MutationOptions options;
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
  for (const MutationTarget& target : mutation_targets()) {
    if (!only.empty() && target.name != only) continue;
    found = true;
    const MutationReport report = run_mutations(target, options);
    faults = faults || !report.faults.empty();
    std::printf("%s\n", report_text(target, report).c_str());
    std::fflush(stdout);
  }
  if (!found) return usage();
  return faults ? 1 : 0;
}
