// Implementation of the rules on include lines that an order of layers cannot express, and of the rule on getenv().
#include <fmt/format.h>

#include "packaging/house/layers.hpp"
#include "support/pattern.hpp"

namespace collectives::house {
namespace {

/// Regular expression for headers of the standard library such as <vector>, but not <mpi.h> or <fmt/format.h>.
#define STANDARD "<[a-z_0-9]+>"

enum class Verb { may, may_not };

struct Rule {
  const char* files;    ///< regular expression that a path contains
  Verb verb;            ///< whether includes must, or must not, begin with one of `headers`
  const char* headers;  ///< regular expression for an include in its quotes or brackets
  const char* why;
};

using enum Verb;

constexpr Rule kRules[] = {
    {"^include/.*pp$", may, R"re("collectives/|<mpi\.h>|)re" STANDARD,
     "public headers stand on public headers and the standard library"},
    {R"re(^include/.*\.h$)re", may, R"re("collectives/(collectives\.h|export\.hpp)"|<(mpi|stddef|stdint)\.h>)re",
     "C headers stand on C"},
    {"^src/(ring|hierarchical|reduce_to_one)/", may,
     R"re("(steps|ring|hierarchical|reduce_to_one)/|"collectives/types\.hpp"|)re" STANDARD,
     "an algorithm emits Steps and knows nothing else"},
    {"^src/steps/", may, R"re("steps/|"collectives/(types|plan|topology)\.hpp"|)re" STANDARD,
     "Steps are a language of their own"},
    {"^src/(transport|ucx|mpi)/", may_not,
     R"re("(ring|hierarchical|reduce_to_one|steps|reduction|planning|execution)/)re", "a transport knows bytes only"},
    {"^src/(transport/|ucx/|mpi/transport)", may_not,
     R"re("communicator/|"collectives/(plan|communicator|collectives)\.)re", "a transport knows bytes only"},
    {"^tools/simulation", may_not,
     R"re("(execution|communicator|monitoring|tuning|device|transport|shared_memory|bootstrap)/|<chrono>)re"
     R"re(|"(base/(environment|wait)|core/tuning)\.)re",
     "a simulation is a function of its arguments"},
    {"^src/reduction/", may,
     R"re("reduction/|"base/host_device\.hpp"|"collectives/types\.hpp"|<hwy/[a-z_]+\.h>|)re" STANDARD,
     "the arithmetic knows spans of elements only"},
    {"^src/compression/[^/]*$", may,
     R"re("(compression|reduction)/|"base/host_device\.hpp"|"collectives/(codec|types)\.hpp"|)re"
     R"re(<(hwy|fmt)/[a-z_]+\.h>|)re" STANDARD,
     "a codec, or a choice of elements, knows spans of values only"},
    {R"re(^(?!include/collectives/(mpi\.hpp|collectives_mpi\.h)$|src/(mpi|mpi_drop_in)/))re", may_not,
     R"re(<mpi\.h>|"mpi\.h"|"collectives/(mpi\.hpp|collectives_mpi\.h)")re", "only mpi and mpi_drop_in know MPI"},
    {"^(?!src/cuda/)", may_not, R"re(<(cuda|nccl)[a-z_]*\.h>|<(cub|thrust|cuda)/)re", "only cuda knows CUDA"},
    {"^(?!src/ucx/)", may_not, "<uc[pts]/", "only ucx knows UCX"},
    {"^(?!src/mpi/)", may_not, "\"mpi/", "mpi is a library of its own"},
    {"^(?!src/ucx/)", may_not, "\"ucx/", "ucx is loaded if it is installed, and never linked"},
    {"^(?!src/cuda/)", may_not, "\"cuda/", "cuda is loaded if it is installed, and never linked"},
    {"^(?!src/mpi_drop_in/)", may_not, "\"mpi_drop_in/", "the drop-in stands on the library"},
};

struct CompiledRule {
  const Rule& rule;
  testing::Pattern files, headers;

  bool is_broken_by(const std::string& path, const std::string& header) const {
    if (!files.first_in(path)) return false;
    const bool hit = headers.at_beginning_of(header).has_value();
    return hit == (rule.verb == may_not);
  }
};

std::vector<CompiledRule> compiled_rules() {
  std::vector<CompiledRule> rules;
  for (const Rule& rule : kRules) rules.push_back({rule, testing::Pattern(rule.files), testing::Pattern(rule.headers)});
  return rules;
}

/// Returns why `line` must not call getenv(), or null. Only base reads the library's own variables; bootstrap reads
/// those of launchers, such as RANK and TF_CONFIG.
const char* fault_of_getenv(const std::string& path, std::string_view line) {
  static const testing::Pattern call(R"(getenv\s*\()");
  if (!call.first_in(line) || is_below(path, {"src/base"})) return nullptr;
  if (!is_below(path, {"src/bootstrap"})) return "calls getenv: the environment is read in src/base/";
  return line.find("COLLECTIVES_") == line.npos ? nullptr : "reads a COLLECTIVES_ variable: that is left to src/base/";
}

}  // namespace

std::vector<Finding> rule_faults(const SourceTree& tree) {
  static const auto rules = compiled_rules();
  std::vector<Finding> faults;
  for (const SourceFile& file : tree) {
    if (!is_code(file.path) || !is_below(file.path, {"include", "src", "tools"})) continue;
    const auto lines = lines_of(file.text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (const char* why = fault_of_getenv(file.path, lines[i])) faults.push_back({file.path, i + 1, why});
      const std::string header = included(lines[i]);
      if (header.empty()) continue;
      for (const CompiledRule& each : rules)
        if (each.is_broken_by(file.path, header))
          faults.push_back({file.path, i + 1, fmt::format("includes {}: {}", header, each.rule.why)});
    }
  }
  return faults;
}

}  // namespace collectives::house
