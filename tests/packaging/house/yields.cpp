// Implementation of the rule on yields: finds the lines that yield the core or spin.
#include "packaging/house/yields.hpp"

#include <algorithm>
#include <string>

#include "support/pattern.hpp"

namespace collectives::house {
namespace {

/// File that may yield the core (`yields`) or spin by an instruction of the processor (`spins`). The barrier of
/// sync_file.cpp spins for a bounded number of polls.
struct Permission {
  const char* path;
  bool yields, spins;
};
constexpr Permission kPermissions[] = {{"src/base/wait.hpp", true, true},
                                       {"src/base/wait.cpp", true, true},
                                       {"src/base/bounded_yield.hpp", true, false},
                                       {"bench/compare/sync_file.cpp", false, true}};

}  // namespace

std::vector<Finding> raw_yields(const SourceTree& tree) {
  static const testing::Pattern yield(
      R"re(\b(sched_yield|pthread_yield|thrd_yield|SYS_sched_yield|this_thread::yield)\b)re");
  static const testing::Pattern spin(
      R"re(\b(_mm_pause|__builtin_ia32_pause|__yield)\b|\basm\b.*\("(yield|pause|rep; ?nop)")re");
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    if (!is_code(file.path) || !is_below(file.path, {"src", "tools", "bench", "python_free_examples"})) continue;
    const auto permission = std::ranges::find(kPermissions, file.path, &Permission::path);
    const bool known = permission != std::end(kPermissions);
    const std::string code = code_only(file.text);
    const auto code_lines = lines_of(code), lines = lines_of(file.text);
    for (std::size_t i = 0; i < code_lines.size(); ++i) {
      const std::string_view blanked = code_lines[i];
      if (yield.first_in(blanked) && !(known && permission->yields))
        findings.push_back({file.path, i + 1, "yields: use a class of src/base/wait.hpp or bounded_yield.hpp"});
      const bool in_code = blanked.find("asm") != blanked.npos || spin.first_in(blanked);
      if (in_code && spin.first_in(lines[i]) && !(known && permission->spins))
        findings.push_back({file.path, i + 1, "spins: use a class of src/base/wait.hpp"});
    }
  }
  return findings;
}

}  // namespace collectives::house
