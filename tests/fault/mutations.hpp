// Mutations: changed copies of valid inputs, which the parsers of the library read in this process.
//
// A target is one parser with a few valid inputs, its seeds. The function run_mutations() changes a seed by a random
// generator, gives the bytes to the parser, and counts the outcomes. Each input follows from the seed of the generator
// and its own number, so a fault can be repeated.
//
//   MutationTarget target{"tuning", {R"({"inline_bytes": 64})"}, [](std::string_view bytes) {
//                           read(bytes);  // throws Error if the bytes are refused
//                           return MutationOutcome::accepted();
//                         }};
//   const MutationReport report = run_mutations(target, {.count = 1000, .seed = 1});
//
// The bytes end at a page that cannot be read. A parser that reads behind them therefore ends the process, also
// without a sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace collectives::testing {

/// Treatment of one input. `refused` is an error, `dropped` is an input that the parser ignores.
struct MutationOutcome {
  enum class Kind : std::uint8_t { accepted, refused, dropped };
  Kind kind = Kind::accepted;
  std::string path;  ///< text that differs for each path through the parser, such as the text of the error

  static MutationOutcome accepted(std::string path = "") { return {Kind::accepted, std::move(path)}; }
  static MutationOutcome refused(std::string path) { return {Kind::refused, std::move(path)}; }
  static MutationOutcome dropped(std::string path = "") { return {Kind::dropped, std::move(path)}; }
};

/// A parser. `parse` may throw Error, which counts as refused. Any other exception is a fault.
struct MutationTarget {
  std::string name;
  std::vector<std::string> seeds;
  std::function<MutationOutcome(std::string_view bytes)> parse;
  unsigned share = 8;  ///< part of the inputs of all targets; a slow parser has fewer
};

/// Targets by the files that define them: mutations_files.cpp and so on. A new file declares its function here and
/// enters it in mutation_targets().
std::vector<MutationTarget> record_targets();
std::vector<MutationTarget> file_targets();
std::vector<MutationTarget> rendezvous_targets();
std::vector<MutationTarget> wire_targets();
/// Returns all targets of the library.
std::vector<MutationTarget> mutation_targets();

/// Maximum number of bytes that a parser may allocate for one input.
inline constexpr std::size_t kMostBytesOfInput = std::size_t{64} << 20;

struct MutationOptions {
  std::uint64_t count = 1000;  ///< number of inputs
  std::uint64_t seed = 1;
  std::uint64_t first = 0;  ///< number of the first input
};

struct MutationReport {
  std::uint64_t accepted = 0, refused = 0, dropped = 0;
  std::size_t paths = 0;            ///< number of different outcomes, without the numbers in their texts
  std::size_t most_bytes = 0;       ///< maximum number of bytes that one input has allocated
  double most_seconds = 0;          ///< maximum time of one input
  double seconds = 0;               ///< time of all inputs, with the time to make them
  std::vector<std::string> faults;  ///< at most ten: an exception that is no Error, too much memory or time
};

/// Returns input `number` of a target. Input 0 and the numbers that follow are the unchanged seeds.
std::string mutated(const MutationTarget&, std::uint64_t seed, std::uint64_t number);

/// Returns the inputs of one target if options.count inputs from number options.first on are divided among all targets
/// by their shares. Ranges of numbers that follow one another yield ranges that do so, too.
MutationOptions share_of(const MutationTarget&, const std::vector<MutationTarget>& all, const MutationOptions&);

/// Parses options.count inputs. If a signal ends the process, its handler writes the target, the seed and the number of
/// the input to stderr.
MutationReport run_mutations(const MutationTarget&, const MutationOptions&);

/// Returns the report of a target on one line.
std::string report_text(const MutationTarget&, const MutationReport&);

}  // namespace collectives::testing
