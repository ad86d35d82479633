// Command line of collectives_bench, the benchmark of collectives. The library CLI11 splits the line into options.
// Every error is one line with the valid values.
#include "collectives_bench/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <ranges>
#include <set>

#include "collectives/plan.hpp"
#include "collectives_bench/guidelines_options.hpp"
#include "collectives_bench/option_values.hpp"

namespace collectives::bench {

namespace {

/// Returns the names of all codecs, with a comma after each.
std::string codec_names() {
  std::string names;
  for (const Codec* codec : codecs()) names += fmt::format("{}, ", codec->name());
  return names;
}

constexpr std::size_t kSmallestBytes = 8;

/// Parses a kind of compression: "none", the name of a codec, "top_k:0.01" or "top_k:1%". Top-k sends only this
/// fraction of the elements.
Compression choose_compression(std::string_view text) {
  constexpr std::string_view kTopK = "top_k:";
  if (text == "none") return {};
  if (const Codec* codec = find_codec(text)) return {std::string(text), codec, 0};
  if (text.starts_with(kTopK)) {
    const std::string_view number = text.substr(kTopK.size());
    double density = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), density);
    const bool percent = error == std::errc() && std::string_view(end, number.data() + number.size()) == "%";
    if (percent) density /= 100;
    if (error == std::errc() && (percent || end == number.data() + number.size()) && density > 0 && density <= 1)
      return {std::string(text), nullptr, density};
  }
  throw BadArguments(
      fmt::format("--compress '{}' is unknown; valid: none, {}top_k:DENSITY with a density above 0, at most 1, or in %",
                  text, codec_names()));
}

const UserOp& bitwise_xor() {
  static const UserOp op{"xor", [](const void* next, void* accumulated, std::size_t count, DataType type) {
                           const auto* from = static_cast<const unsigned char*>(next);
                           auto* to = static_cast<unsigned char*>(accumulated);
                           for (std::size_t i = 0; i < count * size_of(type); ++i) {
                             to[i] = static_cast<unsigned char>(to[i] ^ from[i]);
                           }
                         }};
  return op;
}

/// Values of the options as text, before they are checked. --help shows the defaults.
struct OptionTexts {
  std::string collectives = "all_reduce", backends = "auto", types = "f32", ops = "sum", in_place = "both";
  std::string min_bytes = "0", max_bytes = "64M", factor = "2";
  std::string iterations = "0", warmup = "2", seconds_per_size = "0", buffers = "ordinary", rotate = "0";
  std::string compressions = "none", check = "yes", against, root = "0", seed = "1", bootstrap = "auto";
};

/// Adds the options that select what is measured.
void add_case_options(CLI::App& app, OptionTexts& texts, Settings& settings) {
  app.add_option("collective", texts.collectives,
                 fmt::format("LIST of {}, or all [all_reduce]", names_of(kOperations)));
  app.add_option("--backend", texts.backends,
                 fmt::format("LIST of {}, or all [auto]", fmt::join(backend_names(), ", ")));
  app.add_option("--min-bytes", texts.min_bytes, "smallest vector; after 0 comes 8 [0]");
  app.add_option("--max-bytes", texts.max_bytes, "largest vector [64M]");
  app.add_option("--factor", texts.factor, "from one size to the next [2]");
  app.add_flag("--odd", settings.odd, "odd element counts beside the round ones");
  app.add_option("--type", texts.types, fmt::format("LIST of {}, or all [f32]", names_of(verified_types())));
  app.add_option("--op", texts.ops, fmt::format("LIST of {}, or all [sum]", names_of(verified_ops())));
  app.add_option("--in-place", texts.in_place, "yes, no or both [both]");
}

/// Adds the options about repetitions and memory.
void add_timing_options(CLI::App& app, OptionTexts& texts, Settings& settings) {
  app.add_option("--iterations", texts.iterations, "timed calls of each measurement; 0: as many as fit the time [0]");
  app.add_option("--warmup", texts.warmup, "untimed calls before them, at least 1 [2]");
  app.add_option("--seconds-per-size", texts.seconds_per_size,
                 "time for the timed calls of one measurement [30 s for all together, at most 0.1 s each]");
  app.add_flag(
      "--back-to-back", settings.back_to_back,
      "loops of calls, a barrier only before each loop: time is that of all loops over their calls, p50 and p99 "
      "are of single loops");
  app.add_flag("--persistent", settings.persistent,
               "timed calls start and wait for a persistent call, which is made before");
  app.add_option(
      "--buffers", texts.buffers,
      "ordinary memory; allocated by the library; or device: a GPU's, which the ranks of a host take in turn. "
      "Back to back, calls are then put into a stream, and a loop ends when the GPU is through [ordinary]");
  app.add_option("--rotate", texts.rotate,
                 "each call takes the next of so many buffers that those of a rank are together at least this many "
                 "bytes: none stays in a cache; 0: every call takes the same [0]");
}

/// Adds the options about compression, verification, comparison, reports and the bootstrap.
void add_mode_options(CLI::App& app, OptionTexts& texts, Settings& settings) {
  app.add_option("--compress", texts.compressions,
                 fmt::format("LIST of none, {}top_k:DENSITY (0.01 or 1%): how f32 values travel; of top_k every call "
                             "takes the next of the --rotate buffers, which hold different values then [none]",
                             codec_names()));
  app.add_flag("--force", settings.force, "compress also where the library would rather send everything");
  app.add_flag("--deterministic", settings.deterministic, "the same bits whatever the backend");
  app.add_option("--check", texts.check, "yes or no: verify results [yes]");
  app.add_option("--against", texts.against,
                 "mpi: time the same call of the MPI this runs under, interleaved, on the same buffers");
  app.add_flag("--fraction-of-roofline", settings.fraction_of_roofline,
               "compare with the bound, measured after each measurement: all ranks at once move their share of the "
               "bytes that the collective must move, in shared memory, then wait in a barrier (one host only)");
  app.add_option("--root", texts.root, fmt::format("of {} [0]", names_of(kOperations | std::views::filter(has_root))));
  app.add_option("--seed", texts.seed, "of the data [1]");
  app.add_option("--json", settings.json_file, "write the results there, one JSON object a line");
  app.add_flag("--samples", settings.samples, "with --json: every timed call, slowest rank");
  app.add_option("--csv", settings.csv_file, "write the results there as CSV");
  app.add_option("--bootstrap", texts.bootstrap,
                 "how ranks connect: auto, mpi, environment, or threads:N (no launcher needed) [auto]");
}

void choose_lists(const OptionTexts& texts, Settings& settings) {
  settings.operations = choose<Operation>("collective", texts.collectives, kOperations);
  settings.types = choose<DataType>("--type", texts.types, verified_types());
  settings.ops = choose<ReduceOp::Kind>("--op", texts.ops, verified_ops());
  settings.backends = choose_backends(texts.backends);
  settings.compressions.clear();
  for (const std::string_view item : split_list(texts.compressions))
    settings.compressions.push_back(choose_compression(item));
}

void read_numbers(const OptionTexts& texts, Settings& settings) {
  constexpr std::uint64_t kMostSeed = std::numeric_limits<std::uint64_t>::max();
  settings.min_bytes = size_argument("--min-bytes", texts.min_bytes);
  settings.max_bytes = size_argument("--max-bytes", texts.max_bytes);
  settings.rotate = size_argument("--rotate", texts.rotate);
  settings.factor = number_argument<std::size_t>("--factor", texts.factor, 2, 1U << 20);
  settings.iterations = number_argument<std::size_t>("--iterations", texts.iterations, 0, kMostCalls);
  settings.warmup = number_argument<std::size_t>("--warmup", texts.warmup, 1, kMostCalls);
  settings.seconds_per_size = number_argument<double>("--seconds-per-size", texts.seconds_per_size, 0, kMostSeconds);
  settings.root = number_argument<Rank>("--root", texts.root, 0, kMostRanks - 1);
  settings.seed = number_argument<std::uint64_t>("--seed", texts.seed, 0, kMostSeed);
}

void choose_check(std::string_view text, Settings& settings) {
  if (text != "yes" && text != "no") throw BadArguments(fmt::format("--check '{}' is unknown; valid: yes, no", text));
  settings.check = text == "yes";
}

void choose_in_place(std::string_view text, Settings& settings) {
  if (text == "both") return;
  if (text != "yes" && text != "no")
    throw BadArguments(fmt::format("--in-place '{}' is unknown; valid: yes, no, both", text));
  settings.in_place = text == "yes";
  settings.out_of_place = !settings.in_place;
}

void choose_competitor(std::string_view text, Settings& settings) {
  if (!text.empty() && text != "mpi") throw BadArguments(fmt::format("--against '{}' is unknown; valid: mpi", text));
  settings.against_mpi = !text.empty();
}

void choose_buffers(std::string_view text, Settings& settings) {
  constexpr Buffers kBuffers[] = {Buffers::ordinary, Buffers::allocated, Buffers::device};
  const auto* const chosen = std::ranges::find(kBuffers, text, [](Buffers kind) { return to_string(kind); });
  if (chosen == std::end(kBuffers))
    throw BadArguments(fmt::format("--buffers '{}' is unknown; valid: ordinary, allocated, device", text));
  settings.buffers = *chosen;
}

/// Throws BadArguments if valid options exclude one another.
void check_combinations(const OptionTexts& texts, const Settings& settings) {
  if (settings.buffers == Buffers::device && (settings.against_mpi || settings.fraction_of_roofline))
    throw BadArguments("--buffers device excludes --against mpi and --fraction-of-roofline");
  if (settings.persistent &&
      std::ranges::any_of(settings.compressions, [](const Compression& c) { return c.density > 0; }))
    throw BadArguments("--persistent excludes --compress top_k");
  if (settings.samples && settings.json_file.empty()) throw BadArguments("--samples needs --json FILE");
  check_range(texts.min_bytes, texts.max_bytes, settings);
}

}  // namespace

std::string_view to_string(Buffers buffers) noexcept {
  return buffers == Buffers::ordinary ? "ordinary" : buffers == Buffers::allocated ? "allocated" : "device";
}

Settings parse_settings(int argc, const char* const* argv) {
  if (argc > 1 && argv[1] == kGuidelinesCommand) return parse_guideline_settings(argc - 1, argv + 1);
  Settings settings;
  OptionTexts texts;
  CLI::App app(
      "Times and verifies collectives on the ranks it is started on: mpirun -np 4 collectives_bench all\n"
      "Started alone: collectives_bench --bootstrap threads:4\n"
      "The sub-command guidelines compares the library's calls with one another: collectives_bench guidelines --help\n"
      "LIST is one or more values separated by commas.\n"
      "A timed call, ours or MPI's, starts when the rank leaves one and the same barrier, the library's. Its time is "
      "that\n"
      "of the slowest rank; the time shown is the median of the calls.",
      "collectives_bench");
  add_case_options(app, texts, settings);
  add_timing_options(app, texts, settings);
  add_mode_options(app, texts, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpWanted(app.help());
  } catch (const CLI::ParseError& error) {
    throw BadArguments(complaint(app, error));
  }
  // The order of these checks decides which of several wrong options is reported.
  choose_lists(texts, settings);
  read_numbers(texts, settings);
  choose_bootstrap(texts.bootstrap, settings);
  choose_check(texts.check, settings);
  choose_in_place(texts.in_place, settings);
  choose_competitor(texts.against, settings);
  choose_buffers(texts.buffers, settings);
  check_combinations(texts, settings);
  return settings;
}

std::size_t whole_count(const Case& c, int ranks) noexcept {
  return has_parts(c.operation) ? c.count * static_cast<std::size_t>(ranks) : c.count;
}

std::vector<std::size_t> element_counts(const Settings& settings, Operation operation, DataType type, int ranks) {
  const std::size_t unit = size_of(type) * (has_parts(operation) ? static_cast<std::size_t>(ranks) : 1);
  std::set<std::size_t> counts;
  const auto add = [&](std::size_t bytes) {
    const std::size_t count = bytes / unit + (bytes % unit != 0 ? 1 : 0);
    counts.insert(count);
    if (settings.odd && count >= 2) counts.insert(count % 2 == 0 ? count - 1 : count);
  };
  if (settings.min_bytes == 0) add(0);
  for (std::size_t bytes = settings.min_bytes == 0 ? kSmallestBytes : settings.min_bytes; bytes < settings.max_bytes;) {
    add(bytes);
    if (bytes > settings.max_bytes / settings.factor) break;
    bytes *= settings.factor;
  }
  add(settings.max_bytes);
  return {counts.begin(), counts.end()};
}

static bool compressible(const Compression& compression, Operation operation, DataType type, ReduceOp::Kind op) {
  if (compression.none()) return true;
  if (type != DataType::f32 || operation == Operation::barrier || is_message(operation)) return false;
  return compression.codec != nullptr ||
         (operation == Operation::all_reduce && (op == ReduceOp::Kind::sum || op == ReduceOp::Kind::average));
}

/// Appends the measurements of one operation with one type and op.
static void add_cases(const Settings& settings, const Case& first, int ranks, Schedule& result) {
  for (const Compression& compression : settings.compressions) {
    if (!compressible(compression, first.operation, first.type, first.op)) {
      ++result.skipped;
      continue;
    }
    const bool barrier = first.operation == Operation::barrier, in_place = has_in_place(first.operation);
    for (const std::size_t count :
         barrier ? std::vector<std::size_t>{0} : element_counts(settings, first.operation, first.type, ranks)) {
      Case c = first;
      c.count = count;
      c.compression = compression;
      if (settings.out_of_place || !in_place) result.cases.push_back(c);
      c.in_place = true;
      if (settings.in_place && in_place) result.cases.push_back(c);
    }
  }
}

Schedule schedule(const Settings& settings, int ranks) {
  Schedule result;
  for (const Operation operation : settings.operations) {
    const bool barrier = operation == Operation::barrier;
    // Messages have no backend.
    for (const std::string& backend : is_message(operation) ? std::vector<std::string>{"auto"} : settings.backends) {
      for (const DataType type : barrier ? std::vector{DataType::u8} : settings.types) {
        for (const ReduceOp::Kind op : is_reduction(operation) ? settings.ops : std::vector{ReduceOp::Kind::sum}) {
          if (is_reduction(operation) && !supports(type, reduce_op(op)))
            ++result.skipped;
          else
            add_cases(settings, {operation, backend, type, op}, ranks, result);
        }
      }
    }
  }
  return result;
}

double default_seconds_per_size(std::size_t measurements) noexcept {
  constexpr double kSecondsInAll = 30, kMost = 0.1;
  return std::min(kMost, kSecondsInAll / static_cast<double>(std::max<std::size_t>(measurements, 1)));
}

ReduceOp reduce_op(ReduceOp::Kind kind) noexcept {
  if (kind == ReduceOp::Kind::pre_scaled_sum) return ReduceOp::pre_scaled_sum(0.75);
  if (kind == ReduceOp::Kind::user) return ReduceOp::user(bitwise_xor());
  return ReduceOp::of(kind);
}

}  // namespace collectives::bench
