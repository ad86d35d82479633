// Tests of the command line of the benchmark collectives_bench: valid arguments, errors of one line, and the rows of a
// table that the arguments select.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "collectives/codec.hpp"
#include "collectives/plan.hpp"
#include "collectives_bench/options.hpp"

namespace collectives::bench {
namespace {

Settings parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "collectives_bench");
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

void expect_refusal(const std::vector<const char*>& arguments, const std::vector<std::string>& words) {
  const std::string line = refusal(arguments);
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  for (const std::string& word : words) EXPECT_NE(line.find(word), std::string::npos) << line << " lacks " << word;
}

TEST(ParseBytes, TakesPlainNumbersAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("8"), 8);
  EXPECT_EQ(parse_bytes("100B"), 100);
  EXPECT_EQ(parse_bytes("1K"), 1024);
  EXPECT_EQ(parse_bytes("64M"), 67108864);
  EXPECT_EQ(parse_bytes("64MiB"), 67108864);
  EXPECT_EQ(parse_bytes("64mB"), 67108864);
  EXPECT_EQ(parse_bytes("2G"), std::size_t{2} << 30);
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const char* text : {"", "M", "-1", "1.5M", "8 ", "8X", "8MM", "8Ki", "8iB", "0x10", "99999999999999999999"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(ParseBytes, RefusesWhatDoesNotFit) { EXPECT_EQ(parse_bytes("99999999999G"), std::nullopt); }

TEST(BenchOptions, NoArgumentsMeanSumOfFloatsOverAllSizes) {
  const Settings settings = parse({});
  EXPECT_EQ(settings.operations, std::vector{Operation::all_reduce});
  EXPECT_EQ(settings.types, std::vector{DataType::f32});
  EXPECT_EQ(settings.backends, std::vector<std::string>{"auto"});
  EXPECT_TRUE(settings.in_place);
  EXPECT_TRUE(settings.out_of_place);
  EXPECT_TRUE(settings.check);
  EXPECT_EQ(settings.max_bytes, 67108864);
}

TEST(BenchOptions, ListsKeepTheirOrderAndLoseRepetitions) {
  const Settings settings =
      parse({"all_gather,all_reduce", "--type", "i64,f32,i64", "--backend", "ring,auto", "--op", "max,user"});
  EXPECT_EQ(settings.operations, (std::vector{Operation::all_gather, Operation::all_reduce}));
  EXPECT_EQ(settings.types, (std::vector{DataType::i64, DataType::f32}));
  EXPECT_EQ(settings.backends, (std::vector<std::string>{"ring", "auto"}));
  EXPECT_EQ(settings.ops, (std::vector{ReduceOp::Kind::max, ReduceOp::Kind::user}));
}

TEST(BenchOptions, AllMeansEveryOne) {
  const Settings settings = parse({"all", "--type", "all", "--op", "all", "--backend", "all"});
  EXPECT_EQ(settings.operations.size(), std::size(kOperations));
  EXPECT_EQ(settings.types.size(), 15);  // all but complex numbers and pairs
  EXPECT_EQ(settings.ops.size(), 13);
  EXPECT_GE(settings.backends.size(), 4);
}

TEST(BenchOptions, BadValuesAreRefusedInOneLineThatNamesTheValidOnes) {
  expect_refusal({"all_redcue"}, {"all_redcue", "all_reduce", "barrier", "all"});
  expect_refusal({"--type", "f8"}, {"--type", "f8", "bf16", "u64", "all"});
  expect_refusal({"--type", "f32,"}, {"--type", "bf16"});
  expect_refusal({"--op", "mean"}, {"--op", "mean", "average", "pre_scaled_sum"});
  expect_refusal({"--backend", "rign"}, {"--backend", "rign", "ring", "hierarchical", "reduce_to_one", "auto"});
  expect_refusal({"--backend", ""}, {"--backend", "ring"});
  expect_refusal({"--max-bytes", "64X"}, {"--max-bytes", "64X", "64K"});
  expect_refusal({"--min-bytes", "2M", "--max-bytes", "1M"}, {"--min-bytes", "2M", "1M"});
  expect_refusal({"--in-place", "maybe"}, {"--in-place", "maybe", "yes", "no", "both"});
  expect_refusal({"--check", "1"}, {"--check", "yes", "no"});
  expect_refusal({"--buffers", "huge"}, {"--buffers", "huge", "ordinary", "allocated", "device"});
  expect_refusal({"--rotate", "64X"}, {"--rotate", "64X", "64K"});
  expect_refusal({"--samples"}, {"--samples", "--json"});
  expect_refusal({"--against", "nccl"}, {"--against", "nccl", "mpi"});
  for (const char* bootstrap : {"tcp", "threads", "threads:", "threads:0", "threads:4x"}) {
    expect_refusal({"--bootstrap", bootstrap}, {"--bootstrap", bootstrap, "environment", "threads:N"});
  }
}

TEST(BenchOptions, NumbersOutOfTheirRangeAndWhatIsNoNumberAreRefused) {
  const struct {
    const char* flag;
    std::vector<const char*> wrong;
    std::vector<std::string> range;
  } numbers[] = {
      {"--factor", {"1", "1048577"}, {"whole numbers", "2", "1048576"}},
      {"--iterations", {"10000001", "99999999999999999999"}, {"whole numbers", "0", "10000000"}},
      {"--warmup", {"0", "10000001"}, {"whole numbers", "1", "10000000"}},
      {"--root", {"4096"}, {"whole numbers", "0", "4095"}},
      {"--seed", {"18446744073709551616"}, {"whole numbers", "0", "18446744073709551615"}},
      {"--seconds-per-size", {"3601", "1e300"}, {"numbers", "0", "3600"}},
  };
  for (const auto& [flag, wrong, range] : numbers) {
    std::vector<const char*> values{"nan", "-nan", "inf", "-inf", "-1", "two", "2x", "", " 2", "0x2", "1e999"};
    values.insert(values.end(), wrong.begin(), wrong.end());
    for (const char* value : values) {
      std::vector<std::string> words{flag, "valid"};
      words.insert(words.end(), range.begin(), range.end());
      expect_refusal({flag, value}, words);
    }
    if (std::string(flag) != "--seconds-per-size") expect_refusal({flag, "2.5"}, {flag, "whole numbers"});
  }
}

TEST(BenchOptions, NumbersInTheirRangeAreTaken) {
  const Settings settings = parse({"--factor", "3", "--iterations", "0", "--warmup", "1", "--root", "4095", "--seed",
                                   "18446744073709551615", "--seconds-per-size", "0.25"});
  EXPECT_EQ(settings.factor, 3);
  EXPECT_EQ(settings.iterations, 0);
  EXPECT_EQ(settings.warmup, 1);
  EXPECT_EQ(settings.root, 4095);
  EXPECT_EQ(settings.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(settings.seconds_per_size, 0.25);
}

TEST(BenchOptions, WhatIsMeasuredAndHowIsTaken) {
  const Settings settings = parse({"--buffers", "ordinary", "--rotate", "64M", "--back-to-back",
                                   "--fraction-of-roofline", "--json", "file", "--samples"});
  EXPECT_EQ(settings.buffers, Buffers::ordinary);
  EXPECT_EQ(settings.rotate, 67108864);
  EXPECT_TRUE(settings.back_to_back);
  EXPECT_TRUE(settings.fraction_of_roofline);
  EXPECT_TRUE(settings.samples);
}

TEST(BenchOptions, AnUnknownFlagListsTheKnownOnes) {
  expect_refusal({"--iteration-count", "3"}, {"--iteration-count", "--iterations", "--backend", "--against"});
  expect_refusal({"all_reduce", "broadcast"}, {"broadcast", "--backend"});
}

std::string help() {
  try {
    parse({"--help"});
  } catch (const HelpWanted& wanted) {
    return wanted.what();
  }
  return {};
}

/// Expects that `text` contains a name as a whole word.
void expect_word(const std::string& text, std::string_view name) {
  const std::regex word("(^|[^a-z0-9_])" + std::string(name) + "($|[^a-z0-9_])");
  EXPECT_TRUE(std::regex_search(text, word)) << name << " is missing in\n" << text;
}

TEST(BenchOptions, HelpIsNoErrorAndListsWhatTheLibraryHas) {
  const std::string text = help();
  for (const Collective collective : kCollectives) expect_word(text, to_string(collective));
  for (const Operation operation : kOperations) expect_word(text, to_string(operation));
  for (const DataType type : parse({"--type", "all"}).types) expect_word(text, to_string(type));
  for (const ReduceOp::Kind op : parse({"--op", "all"}).ops) expect_word(text, to_string(op));
  for (const Codec* const codec : codecs()) expect_word(text, codec->name());
  for (const std::string_view backend : backend_names()) expect_word(text, backend);
}

TEST(ElementCounts, BeginWithNothingThenEightBytesUpToTheLargest) {
  const Settings settings = parse({"--max-bytes", "100", "--factor", "2"});
  EXPECT_EQ(element_counts(settings, Operation::all_reduce, DataType::f32, 4),
            (std::vector<std::size_t>{0, 2, 4, 8, 16, 25}));
}

TEST(ElementCounts, AreWholeElementsInEveryPart) {
  const Settings settings = parse({"--max-bytes", "64"});
  // 8 B divided by 7 ranks are 1.14 bytes, which are rounded up to 2.
  EXPECT_EQ(element_counts(settings, Operation::all_gather, DataType::u8, 7),
            (std::vector<std::size_t>{0, 2, 3, 5, 10}));
  EXPECT_EQ(element_counts(settings, Operation::reduce_scatter, DataType::f64, 7), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(ElementCounts, OddOnesStandBesideTheRoundOnes) {
  const Settings settings = parse({"--max-bytes", "64", "--odd"});
  EXPECT_EQ(element_counts(settings, Operation::all_reduce, DataType::f32, 2),
            (std::vector<std::size_t>{0, 1, 2, 3, 4, 7, 8, 15, 16}));
}

TEST(ElementCounts, OneSizeWhenSmallestIsLargest) {
  const Settings settings = parse({"--min-bytes", "1M", "--max-bytes", "1M"});
  EXPECT_EQ(element_counts(settings, Operation::broadcast, DataType::f32, 3), (std::vector<std::size_t>{1 << 18}));
}

TEST(Schedule, ABarrierIsOneRow) {
  EXPECT_EQ(schedule(parse({"barrier", "--type", "all", "--op", "all"}), 4).cases.size(), 1);
}

TEST(Schedule, OpsMatterOnlyWhereSomethingIsReduced) {
  const auto rows = [](const char* collective) {
    return schedule(parse({collective, "--op", "all", "--min-bytes", "8", "--max-bytes", "8", "--in-place", "no"}), 4)
        .cases.size();
  };
  EXPECT_EQ(rows("all_reduce"), 7);
  EXPECT_EQ(rows("broadcast"), 1);
}

TEST(Schedule, CountsThePairsThatDoNotExist) {
  const Schedule plan = schedule(parse({"all_reduce", "--type", "all", "--op", "pre_scaled_sum"}), 4);
  EXPECT_EQ(plan.skipped, 9);  // pre_scaled_sum is not defined for the eight integer types and booleans
  for (const Case& c : plan.cases) EXPECT_TRUE(is_floating(c.type));
}

TEST(Schedule, InPlaceFollowsOutOfPlace) {
  const auto cases = schedule(parse({"--max-bytes", "1K"}), 4).cases;
  for (std::size_t i = 0; i + 1 < cases.size(); i += 2) {
    EXPECT_FALSE(cases[i].in_place);
    EXPECT_TRUE(cases[i + 1].in_place);
    EXPECT_EQ(cases[i].count, cases[i + 1].count);
  }
}

TEST(Schedule, TheDefaultRunStaysWellUnderAMinute) {
  for (const std::size_t measurements : {1UL, 50UL, 1000UL, 25000UL}) {
    EXPECT_LE(default_seconds_per_size(measurements) * static_cast<double>(measurements), 30.001);
  }
}

}  // namespace
}  // namespace collectives::bench
