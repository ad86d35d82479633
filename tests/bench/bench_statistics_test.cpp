// Tests of the statistics that the benchmark prints in a row: medians, percentiles and bandwidths.
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collectives_bench/statistics.hpp"

namespace collectives::bench {
namespace {

TEST(Median, OddAndEvenNumbersOfValues) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_EQ(median(std::vector{7.0}), 7);
  EXPECT_EQ(median({}), 0);
}

TEST(Percentile, IsANearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
  EXPECT_EQ(percentile(hundred, 0.5), 50);
  EXPECT_EQ(percentile(hundred, 1.0), 100);
  EXPECT_EQ(percentile(hundred, 0.0), 1);
}

TEST(Percentile, OfFewValuesIsTheLargest) {
  EXPECT_EQ(percentile(std::vector{5.0, 9.0, 1.0}, 0.99), 9);
  EXPECT_EQ(percentile({}, 0.99), 0);
}

TEST(GeometricMean, OfReciprocalsIsOne) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector{4.0, 0.25}), 1);
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector{2.0, 8.0}), 4);
  EXPECT_EQ(geometric_mean({}), 0);
}

Statistic median_of(const std::vector<double>& values) {
  return [&values](std::span<const std::size_t> drawn) {
    std::vector<double> chosen;
    for (const std::size_t index : drawn) chosen.push_back(values[index]);
    return std::optional(median(chosen));
  };
}

TEST(BootstrapInterval, HoldsTheStatisticAndNarrowsWithMoreSamples) {
  std::vector<double> few, many;
  for (int i = 0; i < 10; ++i) few.push_back(i);
  for (int i = 0; i < 1000; ++i) many.push_back(0.01 * i);
  const auto wide = bootstrap_interval(few.size(), median_of(few));
  const auto narrow = bootstrap_interval(many.size(), median_of(many));
  ASSERT_TRUE(wide && narrow);
  EXPECT_DOUBLE_EQ(wide->value, 4.5);
  EXPECT_LT(wide->low, wide->value);
  EXPECT_GT(wide->high, wide->value);
  EXPECT_LT(narrow->high - narrow->low, wide->high - wide->low);
}

TEST(BootstrapInterval, OfEqualSamplesIsEqual) {
  const std::vector<double> values{1, 5, 2, 8, 3, 9, 4};
  const auto first = bootstrap_interval(values.size(), median_of(values));
  const auto second = bootstrap_interval(values.size(), median_of(values));
  EXPECT_EQ(first->low, second->low);
  EXPECT_EQ(first->high, second->high);
}

TEST(BootstrapInterval, IsMissingWithoutSamplesOrValue) {
  EXPECT_FALSE(bootstrap_interval(0, [](auto) { return std::optional(1.0); }));
  EXPECT_FALSE(bootstrap_interval(3, [](auto) { return std::optional<double>(); }));
}

TEST(AlgorithmBandwidth, IsBytesOverTime) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1000000, 1000), 1);  // 1 MB in 1 ms is 1 GB/s
  EXPECT_EQ(algorithm_bandwidth(8, 0), 0);
  EXPECT_EQ(algorithm_bandwidth(0, 5), 0);
}

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 1), 0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::scatter_v, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::sendrecv, 8), 1);
}

}  // namespace
}  // namespace collectives::bench
