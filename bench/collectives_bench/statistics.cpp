// Implementation of the statistics of the benchmarks: medians, percentiles, means, intervals and
// bandwidths.
#include "collectives_bench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace collectives::bench {

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double percentile(std::span<const double> values, double share) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  const std::size_t index = std::clamp<std::size_t>(rank, 1, sorted.size()) - 1;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(index));
  return sorted[index];
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double logarithms = 0;
  for (const double value : values) logarithms += std::log(value);
  return std::exp(logarithms / static_cast<double>(values.size()));
}

std::optional<Interval> bootstrap_interval(std::size_t samples, const Statistic& statistic) {
  constexpr std::size_t kResamples = 2000;
  constexpr double kTail = 0.025;
  if (samples == 0) return std::nullopt;
  std::vector<std::size_t> drawn(samples);
  std::iota(drawn.begin(), drawn.end(), std::size_t{0});
  const std::optional<double> value = statistic(drawn);
  if (!value) return std::nullopt;
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): equal samples give equal intervals
  std::vector<double> values;
  for (std::size_t i = 0; i < kResamples; ++i) {
    for (std::size_t& each : drawn) each = random() % samples;
    if (const auto one = statistic(drawn)) values.push_back(*one);
  }
  return Interval{*value, percentile(values, kTail), percentile(values, 1 - kTail)};
}

double algorithm_bandwidth(std::size_t bytes, double microseconds) noexcept {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

double bus_factor(Operation operation, int ranks) noexcept {
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (operation == Operation::all_reduce) return 2 * share;
  return has_parts(operation) ? share : 1;
}

}  // namespace collectives::bench
