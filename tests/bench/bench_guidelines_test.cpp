// Tests of the performance guidelines of collectives_bench: the cells that follow from the table, verdicts on synthetic
// times, the load check, and a measurement with ranks that are threads.
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "collectives_bench/guidelines.hpp"
#include "collectives_bench/guidelines_load.hpp"
#include "collectives_bench/guidelines_measure.hpp"
#include "collectives_bench/guidelines_run.hpp"
#include "collectives_bench/guidelines_verdict.hpp"
#include "support/ranks.hpp"

namespace collectives::bench {
namespace {

Settings parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"collectives_bench", "guidelines"});
  return parse_settings(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const BadArguments& error) {
    return error.what();
  }
  return "accepted";
}

std::size_t bytes_of(const TimedCall& call, int ranks) {
  return whole_count(call.what, ranks) * size_of(call.what.type);
}

/// Returns a comparison with this interval of the ratio.
Comparison with_interval(double low, double high) { return {0, 0, {(low + high) / 2, low, high}}; }

/// Returns `count` times around `typical` microseconds: noise of 10 %, and every tenth time disturbed.
std::vector<double> noisy_times(double typical, std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.1);
  std::vector<double> times;
  for (std::size_t i = 0; i < count; ++i) times.push_back(typical * noise(random) * (random() % 10 == 0 ? 20 : 1));
  return times;
}

TEST(GuidelineTable, NamesDifferAndBothSidesHaveTerms) {
  std::set<std::string_view> names;
  for (const Guideline& guideline : guidelines()) {
    EXPECT_TRUE(names.insert(guideline.name).second) << guideline.name;
    EXPECT_FALSE(guideline.left.empty()) << guideline.name;
    EXPECT_FALSE(guideline.right.empty()) << guideline.name;
    EXPECT_FALSE(guideline.rule.empty()) << guideline.name;
  }
}

TEST(GuidelineCells, SidesMoveEqualBytesUnlessTheGuidelineIsAboutLengths) {
  for (const int ranks : {2, 3})
    for (const GuidelineCell& cell : guideline_cells(parse({"--max-bytes", "64K"}), ranks)) {
      if (cell.guideline->name.find("monotony") != std::string_view::npos) continue;
      const std::string text = text_of(cell.left, ranks) + " <= " + text_of(cell.right, ranks);
      std::size_t left = 0, right = 0;
      for (const TimedCall& call : cell.left) left += bytes_of(call, ranks);
      for (const TimedCall& call : cell.right) right += bytes_of(call, ranks);
      // A copy, and a pair of calls that replace one call, move the vector twice.
      const bool is_twice = cell.right.size() == 2 && cell.guideline->name != "split";
      EXPECT_EQ(left * (is_twice ? 2 : 1), right) << cell.guideline->name << ": " << text;
    }
}

TEST(GuidelineCells, SizesAreThoseOfTheOptions) {
  const auto sizes_of = [](const char* name, const char* collective) {
    std::vector<std::size_t> sizes;
    for (const GuidelineCell& cell : guideline_cells(
             parse({collective, "--guidelines", name, "--min-bytes", "1K", "--max-bytes", "16K", "--factor", "4"}), 2))
      sizes.push_back(cell.bytes);
    return sizes;
  };
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes_of("persistent", "broadcast"), (Sizes{1024, 4096, 16384}));
  EXPECT_EQ(sizes_of("split", "broadcast"), (Sizes{1024, 4096}));     // twice 16 KiB is too long
  EXPECT_EQ(sizes_of("monotony", "broadcast"), (Sizes{1024, 4096}));  // there is no next size
  EXPECT_EQ(sizes_of("group", "broadcast"), (Sizes{1024}));           // eight calls of 4 KiB are too long
}

TEST(GuidelineCells, VectorsHaveWholePartsForEachRank) {
  for (const GuidelineCell& cell : guideline_cells(parse({"--max-bytes", "1K"}), 3)) {
    if (cell.guideline->name != "all_reduce_parts") continue;
    EXPECT_EQ(cell.bytes % 12, 0) << cell.bytes;
    EXPECT_EQ(bytes_of(cell.left.front(), 3), cell.bytes);
  }
}

TEST(GuidelineCells, BarrierHasNoCellsAboutVectors) {
  std::set<std::string_view> names;
  for (const GuidelineCell& cell : guideline_cells(parse({"barrier", "--backend", "ring"}), 2))
    names.insert(cell.guideline->name);
  EXPECT_EQ(names, (std::set<std::string_view>{"backend", "group", "persistent"}));
}

TEST(GuidelineCells, TextsNameCallsAndLengths) {
  const auto text = [](const char* name, const char* collective) {
    const GuidelineCell cell = guideline_cells(
        parse({collective, "--guidelines", name, "--backend", "ring", "--min-bytes", "8K", "--max-bytes", "64K"}),
        2)[0];
    return text_of(cell.left, 2) + " <= " + text_of(cell.right, 2);
  };
  EXPECT_EQ(text("all_reduce_parts", "all_reduce"), "all_reduce 8 KiB <= reduce_scatter 8 KiB + all_gather 8 KiB");
  EXPECT_EQ(text("split", "gather"), "gather 16 KiB <= 2 x gather 8 KiB");
  EXPECT_EQ(text("backend", "reduce"), "reduce 8 KiB <= reduce 8 KiB by ring");
  EXPECT_EQ(text("in_place", "scan"), "scan 8 KiB in place <= scan 8 KiB + copy");
  EXPECT_EQ(text("group", "reduce"), "8 x reduce 8 KiB in a group <= 8 x reduce 8 KiB");
}

TEST(GuidelineOptions, DefaultsSelectEveryGuidelineAndBackend) {
  const Settings settings = parse({});
  ASSERT_TRUE(settings.guidelines.has_value());
  EXPECT_EQ(settings.guidelines->chosen.size(), guidelines().size());
  EXPECT_FALSE(settings.guidelines->judge_busy);
  EXPECT_EQ(settings.max_bytes, 16U << 20);
  EXPECT_EQ(std::ranges::count(settings.backends, "auto"), 0);
  EXPECT_EQ(std::ranges::count(settings.backends, "ring"), 1);
}

TEST(GuidelineOptions, AreReadLikeThoseOfTheBenchmark) {
  const Settings settings = parse({"gather,scatter", "--guidelines", "scatter,split", "--judge-busy", "--type", "bf16",
                                   "--bootstrap", "threads:3", "--seconds-per-size", "0.5", "--backend", "ring"});
  EXPECT_EQ(settings.operations, (std::vector{Operation::gather, Operation::scatter}));
  ASSERT_EQ(settings.guidelines->chosen.size(), 2);
  EXPECT_EQ(settings.guidelines->chosen[0]->name, "scatter");
  EXPECT_TRUE(settings.guidelines->judge_busy);
  EXPECT_EQ(settings.types, std::vector{DataType::bf16});
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.seconds_per_size, 0.5);
  EXPECT_EQ(settings.backends, std::vector<std::string>{"ring"});
}

TEST(GuidelineOptions, MistakesAreOneLineWithTheValidValues) {
  for (const auto& [arguments, word] : std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{"--guidelines", "spilt"}, "split"},
           {{"sendrecv"}, "all_to_all"},
           {{"--against", "mpi"}, "--judge-busy"},
           {{"--backend", "rign"}, "hierarchical"},
           {{"--min-bytes", "1M", "--max-bytes", "1K"}, "--min-bytes"},
           {{"--factor", "1"}, "from 2"}}) {
    const std::string line = refusal(arguments);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_NE(line.find(word), std::string::npos) << line;
  }
}

TEST(GuidelineOptions, NothingToCompareIsAMistake) {
  EXPECT_THROW(check_guidelines(parse({}), 1), BadArguments);
  EXPECT_THROW(check_guidelines(parse({"barrier", "--guidelines", "split"}), 2), BadArguments);
  EXPECT_NO_THROW(check_guidelines(parse({}), 2));
}

TEST(CompareSides, RatioIsThatOfTheMediansTimesTheWeight) {
  const PairedTimes times{{4, 4, 4, 4}, {2, 2, 2, 2}, 2};
  const auto comparison = compare_sides(times, 0.9);
  ASSERT_TRUE(comparison.has_value());
  EXPECT_DOUBLE_EQ(comparison->ratio.value, 1.8);
  EXPECT_DOUBLE_EQ(comparison->ratio.low, 1.8);
  EXPECT_DOUBLE_EQ(comparison->ratio.high, 1.8);
  EXPECT_EQ(comparison->left, 4);
  EXPECT_EQ(comparison->right, 2);
}

TEST(CompareSides, MissingSideHasNoComparison) {
  EXPECT_EQ(compare_sides({{}, {}, 1}, 1), std::nullopt);
  EXPECT_EQ(compare_sides({{1, 2}, {}, 1}, 1), std::nullopt);
  EXPECT_EQ(compare_sides({{}, {1, 2}, 1}, 1), std::nullopt);
  EXPECT_EQ(compare_sides({{1, 2}, {1}, 1}, 1), std::nullopt);
}

TEST(CompareSides, EqualSidesNeverExceedDespiteNoise) {
  std::mt19937_64 random(1);
  for (int cell = 0; cell < 300; ++cell) {
    const PairedTimes times{noisy_times(3, 15 * 8, random), noisy_times(3, 15 * 8, random), 8};
    EXPECT_FALSE(compare_sides(times, 1)->exceeds()) << "cell " << cell;
  }
}

TEST(CompareSides, SideThatTakesHalfAsLongAgainExceedsDespiteNoise) {
  std::mt19937_64 random(1);
  for (int cell = 0; cell < 100; ++cell) {
    const PairedTimes times{noisy_times(4.5, 15 * 8, random), noisy_times(3, 15 * 8, random), 8};
    EXPECT_TRUE(compare_sides(times, 1)->exceeds()) << "cell " << cell;
  }
}

TEST(Comparison, ExceedsOnlyIfTheWholeIntervalIsAboveTheLimit) {
  EXPECT_TRUE(with_interval(1.06, 1.2).exceeds());
  EXPECT_FALSE(with_interval(1.05, 1.2).exceeds());
  EXPECT_FALSE(with_interval(0.9, 3).exceeds());
  EXPECT_FALSE(with_interval(0.5, 0.6).exceeds());
}

TEST(VerdictOn, GuidelineIsViolatedIfTwoRunsOfThreeExceed) {
  const Comparison above = with_interval(1.2, 1.3), below = with_interval(0.9, 1.1);
  EXPECT_EQ(verdict_on(std::vector{above, above}), GuidelineVerdict::violated);
  EXPECT_EQ(verdict_on(std::vector{above, below, above}), GuidelineVerdict::violated);
}

TEST(VerdictOn, GuidelineHoldsIfTheFirstRunOrTwoRunsDoNotExceed) {
  const Comparison above = with_interval(1.2, 1.3), below = with_interval(0.9, 1.1);
  EXPECT_EQ(verdict_on(std::vector{below}), GuidelineVerdict::holds);
  EXPECT_EQ(verdict_on(std::vector{above, below, below}), GuidelineVerdict::holds);
}

TEST(VerdictOn, AnotherRunDecidesAfterOneOrOneOfTwo) {
  const Comparison above = with_interval(1.2, 1.3), below = with_interval(0.9, 1.1);
  EXPECT_EQ(verdict_on(std::vector{above}), GuidelineVerdict::undecided);
  EXPECT_EQ(verdict_on(std::vector{above, below}), GuidelineVerdict::undecided);
}

TEST(VerdictOn, NoRunMeansLeftOut) { EXPECT_EQ(verdict_on({}), GuidelineVerdict::left_out); }

TEST(MiddleOf, IsTheMedianRatioOrTheSmallerOfTwo) {
  const Comparison low = with_interval(1, 1), middle = with_interval(2, 2), high = with_interval(3, 3);
  EXPECT_EQ(middle_of(std::vector{high, low, middle}).ratio.value, 2);
  EXPECT_EQ(middle_of(std::vector{high, low}).ratio.value, 1);
  EXPECT_EQ(middle_of(std::vector{high}).ratio.value, 3);
}

TEST(LoadOf, LostShareIsTheTimeAboveTheMedian) {
  const BarrierLoad steady = load_of(std::vector{2.0, 2.0, 2.0});
  EXPECT_EQ(steady.median_us, 2);
  EXPECT_EQ(steady.lost, 0);
  const BarrierLoad disturbed = load_of(std::vector{1.0, 1.0, 1.0, 1.0, 6.0});
  EXPECT_EQ(disturbed.median_us, 1);
  EXPECT_DOUBLE_EQ(disturbed.lost, 0.5);
  EXPECT_EQ(load_of({}).lost, 0);
}

TEST(ReasonOfLoad, IdleMachineHasNone) {
  const LoadLimits limits = limits_for(Topology::regular(2, 2, 4));
  EXPECT_EQ(reason_of_load({0.3, 0.05}, std::nullopt, limits), std::nullopt);
  EXPECT_EQ(reason_of_load({0.3, 0.05}, BarrierLoad{0.4, 0.1}, limits), std::nullopt);
}

TEST(ReasonOfLoad, BusyMachineHasOneLine) {
  const LoadLimits limits = limits_for(Topology::regular(2, 2, 4));
  const BarrierLoad idle{0.3, 0.05};
  for (const auto& [before, during] : std::vector<std::pair<BarrierLoad, std::optional<BarrierLoad>>>{
           {{0.3, 0.5}, std::nullopt},         // other programs take turns with the ranks
           {{50, 0.02}, std::nullopt},         // the ranks share a core
           {idle, BarrierLoad{0.3, 0.5}},      // another program started later
           {idle, BarrierLoad{2.4, 0.05}}}) {  // barriers became eight times as long
    const auto reason = reason_of_load(before, during, limits);
    ASSERT_TRUE(reason.has_value()) << before.median_us << " " << before.lost;
    EXPECT_EQ(reason->find('\n'), std::string::npos) << *reason;
  }
}

TEST(ReasonOfLoad, MoreRanksThanCoresHaveHigherLimits) {
  const BarrierLoad sharing{50, 0.4};
  EXPECT_EQ(reason_of_load(sharing, std::nullopt, limits_for(Topology::regular(4, 4, 2))), std::nullopt);
  EXPECT_NE(reason_of_load(sharing, std::nullopt, limits_for(Topology::regular(4, 4, 4))), std::nullopt);
}

TEST(ReasonOfLoad, BarriersBetweenHostsMayTakeLong) {
  EXPECT_EQ(reason_of_load({60, 0.05}, std::nullopt, limits_for(Topology::regular(2, 1, 4))), std::nullopt);
}

/// Measures the cells of these settings once. Calls visit(cell, result) on every rank, for one rank at a time.
template <class Visit>
void measure(int ranks, const Settings& settings, Visit&& visit) {
  std::mutex mutex;
  testing::run_communicators(ranks, [&](Communicator& comm) {
    const std::vector<GuidelineCell> cells = guideline_cells(settings, ranks);
    GuidelineMeasurement measurement(comm, settings, cells);
    for (const GuidelineCell& cell : cells) {
      const CellTimes result = measurement.run(cell, 0.001);
      const std::lock_guard lock(mutex);
      visit(cell, result);
    }
  });
}

TEST(GuidelineMeasurement, EveryCellHasTimesOfBothSidesOrAReason) {
  for (const int ranks : {2, 3}) {
    std::set<std::string_view> measured;
    measure(ranks, parse({"--max-bytes", "4K", "--factor", "16", "--iterations", "3", "--warmup", "1"}),
            [&](const GuidelineCell& cell, const CellTimes& result) {
              EXPECT_EQ(result.times.left.size(), result.left_out.empty() ? 3 : 0) << cell.guideline->name;
              EXPECT_EQ(result.times.right.size(), result.times.left.size()) << cell.guideline->name;
              if (result.left_out.empty()) measured.insert(cell.guideline->name);
            });
    EXPECT_EQ(measured.size(), guidelines().size());
  }
}

TEST(GuidelineMeasurement, BothSidesAreTimedFifteenTimesAtLeast) {
  measure(2, parse({"all_reduce", "--guidelines", "persistent", "--min-bytes", "1M", "--max-bytes", "1M"}),
          [](const GuidelineCell&, const CellTimes& result) { EXPECT_GE(result.times.left.size(), 15); });
}

TEST(GuidelineMeasurement, BackendThatRefusesACallIsLeftOutWithItsReason) {
  measure(2,
          parse({"gather", "--guidelines", "backend", "--backend", "ring", "--min-bytes", "1K", "--max-bytes", "1K"}),
          [](const GuidelineCell&, const CellTimes& result) {
            EXPECT_NE(result.left_out.find("refused: "), std::string::npos) << result.left_out;
            EXPECT_NE(result.left_out.find("gather"), std::string::npos) << result.left_out;
          });
}

TEST(GuidelineMeasurement, BackendWithThePlanOfAnotherIsLeftOut) {
  std::vector<std::string> reasons;
  measure(2,
          parse({"broadcast", "--guidelines", "backend", "--backend", "hierarchical,reduce_to_one,reduce_to_one_tree",
                 "--min-bytes", "1K", "--max-bytes", "1K", "--iterations", "1"}),
          [&](const GuidelineCell& cell, const CellTimes& result) {
            reasons.push_back(cell.what.backend + ": " + result.left_out);
          });
  EXPECT_EQ(std::ranges::count(reasons, "hierarchical: equal plan: that of auto"), 2);
  EXPECT_EQ(std::ranges::count(reasons, "reduce_to_one: "), 2);
}

TEST(RunGuidelines, AllRanksGetTheSameNumberOfViolations) {
  // This guideline never holds, because fifty calls take longer than one.
  const Guideline never{"never", "50 calls <= 1 call", {{.times = 50}}, {Term{}}};
  Settings settings = parse({"all_reduce", "--min-bytes", "64", "--max-bytes", "8K", "--factor", "4", "--judge-busy",
                             "--seconds-per-size", "0.01"});
  settings.guidelines->chosen = {&never};
  std::mutex mutex;
  std::vector<std::size_t> violated;
  testing::run_communicators(3, [&](Communicator& comm) {
    const GuidelineOutcome outcome = run_guidelines(comm, settings, nullptr, {});
    const std::lock_guard lock(mutex);
    violated.push_back(outcome.violated);
    EXPECT_TRUE(outcome.busy.empty()) << outcome.busy;
  });
  ASSERT_EQ(violated.size(), 3);
  EXPECT_GT(violated[0], 0);
  EXPECT_EQ(violated[1], violated[0]);
  EXPECT_EQ(violated[2], violated[0]);
}

}  // namespace
}  // namespace collectives::bench
