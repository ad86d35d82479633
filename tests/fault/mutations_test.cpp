// Tests of mutations: the parsers of the library survive changed inputs, and the mutations find faults in parsers that
// were made with one.
#include "fault/mutations.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "support/child.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

constexpr std::uint64_t kInputs = kSanitized ? 400 : 1000;

TEST(Mutations, OfEveryInputHarmNoParser) {
  set_log_level(LogLevel::off);
  for (const MutationTarget& target : mutation_targets()) {
    const MutationReport report = run_mutations(target, {.count = kInputs, .seed = 1});
    std::printf("%s\n", report_text(target, report).c_str());
    EXPECT_TRUE(report.faults.empty()) << report_text(target, report);
    EXPECT_EQ(report.accepted + report.refused + report.dropped, kInputs);
    EXPECT_LE(report.most_bytes, kMostBytesOfInput);
    EXPECT_GE(report.paths, 2u) << target.name;
  }
  set_log_level(LogLevel::warning);
}

TEST(Mutations, AreEqualForEqualSeeds) {
  const MutationTarget target{"two", {"{\"a\":1,\"b\":[2,3]}", "12,34"}, nullptr};
  EXPECT_EQ(mutated(target, 1, 0), target.seeds[0]);
  for (std::uint64_t number = 2; number < 50; ++number)
    EXPECT_EQ(mutated(target, 7, number), mutated(target, 7, number));
  EXPECT_NE(mutated(target, 1, 20), mutated(target, 2, 20));
}

TEST(Mutations, AreDividedAmongTargetsByTheirShares) {
  const std::vector<MutationTarget> all{{"one", {""}, nullptr, 1}, {"two", {""}, nullptr, 2}, {"eight", {""}, nullptr}};
  for (const MutationTarget& target : all) {
    std::uint64_t next = 0;
    for (const std::uint64_t first : {0U, 7U, 14U, 21U}) {
      const MutationOptions mine = share_of(target, all, {.count = 7, .seed = 3, .first = first});
      EXPECT_EQ(mine.first, next) << target.name;
      EXPECT_EQ(mine.seed, 3u);
      next = mine.first + mine.count;
    }
    EXPECT_EQ(next, 28 * target.share / 11) << target.name;
  }
}

// ---- parsers with one fault each ----

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  if (bytes.size() >= at + sizeof word) std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

/// Content of a message: a length of 4 bytes, then the bytes.
const std::string kMessage("\x05\0\0\0hello", 9);

MutationOutcome reads_behind_its_input(std::string_view bytes) {
  std::uint32_t sum = 0;
  const std::size_t length = word_at(bytes, 0);
  for (std::size_t i = 0; i < length && bytes.size() >= 4; ++i) sum += static_cast<unsigned char>(bytes.data()[4 + i]);
  return MutationOutcome::accepted(std::to_string(sum));
}

MutationOutcome reads_a_text_without_end(std::string_view bytes) {
  return MutationOutcome::accepted(std::to_string(bytes.empty() ? 0 : std::strlen(bytes.data())));
}

MutationOutcome allocates_what_the_input_says(std::string_view bytes) {
  // At most 256 MiB, which no test machine lacks, and whose pages are not touched.
  const auto memory = std::make_unique_for_overwrite<char[]>((word_at(bytes, 0) & 0x0fffffff) + 1);
  const_cast<volatile char&>(memory[0]) = 1;  // else the compiler may leave the allocation out
  return MutationOutcome::accepted();
}

void nest(std::string_view& left, int depth) {
  if (left.empty() || left.front() != '[') return;
  left.remove_prefix(1);
  nest(left, depth + 1);
  if (depth == 0) left = {};
}
MutationOutcome recurses_as_deep_as_the_input(std::string_view bytes) {
  std::string_view left = bytes.substr(std::min(bytes.find('['), bytes.size()));
  nest(left, 0);
  return MutationOutcome::accepted();
}

MutationOutcome throws_out_of_range(std::string_view bytes) {
  const std::vector<int> table(16);
  return MutationOutcome::accepted(std::to_string(table.at(word_at(bytes, 0))));
}

MutationOutcome throws_of_the_json_library(std::string_view bytes) {
  const auto value = nlohmann::json::parse(bytes, nullptr, false);
  return MutationOutcome::accepted(value.at("host").get<std::string>());
}

MutationOutcome divides_by_the_input(std::string_view bytes) {
  const volatile int divisor = static_cast<int>(word_at(bytes, 0));
  return MutationOutcome::accepted(std::to_string(100 / divisor));
}

MutationOutcome asserts_the_input(std::string_view bytes) {
  if (word_at(bytes, 0) > bytes.size()) std::abort();
  return MutationOutcome::accepted();
}

MutationOutcome believes_an_address(std::string_view bytes) {
  std::uint64_t address = 0;
  if (bytes.size() < sizeof address) return MutationOutcome::dropped();
  std::memcpy(&address, bytes.data(), sizeof address);
  return MutationOutcome::accepted(address == 0 ? "" : std::string(1, *reinterpret_cast<const char*>(address)));
}

MutationOutcome writes_where_the_input_says(std::string_view bytes) {
  static std::vector<char> table(64);
  volatile char* const at = table.data();
  at[word_at(bytes, 0)] = 1;
  return MutationOutcome::accepted();
}

MutationOutcome keeps_all_inputs(std::string_view bytes) {
  std::vector<std::string> kept;
  for (std::uint32_t copy = 0; copy < word_at(bytes, 0) && copy < 400'000; ++copy) kept.emplace_back(256, 'x');
  return MutationOutcome::accepted(std::to_string(kept.size()));
}

MutationOutcome throws_no_exception_of_a_class(std::string_view bytes) {
  if (word_at(bytes, 0) == 0xffffffff) throw 7;
  return MutationOutcome::accepted();
}

struct Faulty {
  const char* name;
  MutationOutcome (*parse)(std::string_view);
  std::string seed = kMessage;
};

/// Returns whether the mutations find the fault: the process ends by a signal or a sanitizer, or a fault is reported.
bool is_found(const Faulty& faulty, std::uint64_t inputs = 3000) {
  Child child([&](Line&) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) return 0;  // the handler of signals writes to it
    const MutationTarget target{faulty.name, {faulty.seed}, faulty.parse};
    for (std::uint64_t number = 0; number < inputs; number += 50)
      if (!run_mutations(target, {.count = 50, .seed = 1, .first = number}).faults.empty()) return 1;
    return 0;
  });
  return child.wait() != 0;
}

TEST(Mutations, FindEachPlantedFault) {
  const std::string address(8, '\0');
  for (const Faulty& faulty :
       {Faulty{"reads behind its input", reads_behind_its_input},
        Faulty{"reads a text without end", reads_a_text_without_end, std::string("hello\0", 6)},
        Faulty{"allocates what the input says", allocates_what_the_input_says},
        Faulty{"recurses as deep as the input", recurses_as_deep_as_the_input, "{\"a\":[1]}"},
        Faulty{"throws out_of_range", throws_out_of_range},
        Faulty{"throws an exception of the JSON library", throws_of_the_json_library, R"({"host":"a","cores":4})"},
        Faulty{"divides by the input", divides_by_the_input}, Faulty{"asserts the input", asserts_the_input},
        Faulty{"believes an address", believes_an_address, address},
        Faulty{"writes where the input says", writes_where_the_input_says},
        Faulty{"keeps all inputs", keeps_all_inputs}, Faulty{"throws a number", throws_no_exception_of_a_class}})
    EXPECT_TRUE(is_found(faulty)) << faulty.name;
}

TEST(Mutations, ReportNoFaultInAParserThatChecks) {
  EXPECT_FALSE(is_found({"checks",
                         [](std::string_view bytes) {
                           return word_at(bytes, 0) + std::size_t{4} == bytes.size()
                                      ? MutationOutcome::accepted()
                                      : MutationOutcome::refused("another length");
                         }},
                        500));
}

}  // namespace
}  // namespace collectives::testing
