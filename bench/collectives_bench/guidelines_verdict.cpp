// Implementation of the verdicts on performance guidelines: ratios of the times of two sides, and conclusions from
// several runs.
#include "collectives_bench/guidelines_verdict.hpp"

#include <algorithm>
#include <numeric>

namespace collectives::bench {

std::optional<Comparison> compare_sides(const PairedTimes& times, double weight) {
  // Smallest time that counts, in microseconds. The clock may return equal values before and after a call of one rank.
  constexpr double kShortest = 1e-3;
  const std::size_t pairs = times.left.size(), length = times.pairs_per_round;
  if (pairs == 0 || times.right.size() != pairs || length == 0) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t first = 0; first < pairs; first += length) {
    const std::size_t here = std::min(length, pairs - first);
    const auto median_of_round = [&](const std::vector<double>& side) {
      return std::max(kShortest, median(std::span(side).subspan(first, here)));
    };
    ratios.push_back(weight * median_of_round(times.left) / median_of_round(times.right));
  }
  const auto median_ratio = [&](std::span<const std::size_t> drawn) {
    std::vector<double> chosen;
    for (const std::size_t index : drawn) chosen.push_back(ratios[index]);
    return std::optional(median(chosen));
  };
  return Comparison{median(times.left), median(times.right), *bootstrap_interval(ratios.size(), median_ratio)};
}

std::string_view to_string(GuidelineVerdict verdict) noexcept {
  switch (verdict) {
    case GuidelineVerdict::left_out: return "left out";
    case GuidelineVerdict::holds: return "holds";
    case GuidelineVerdict::violated: return "violated";
    case GuidelineVerdict::undecided: return "undecided";
  }
  return "";
}

GuidelineVerdict verdict_on(std::span<const Comparison> runs) noexcept {
  if (runs.empty()) return GuidelineVerdict::left_out;
  const auto exceeding = static_cast<std::size_t>(std::ranges::count_if(runs, &Comparison::exceeds));
  const std::size_t holding = runs.size() - exceeding;
  if (exceeding >= kRunsOfViolation) return GuidelineVerdict::violated;
  const bool is_lost = holding > kGuidelineRuns - kRunsOfViolation;  // two runs cannot exceed any more
  return is_lost || !runs.front().exceeds() ? GuidelineVerdict::holds : GuidelineVerdict::undecided;
}

const Comparison& middle_of(std::span<const Comparison> runs) {
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t index) { return runs[index].ratio.value; });
  return runs[order[(runs.size() - 1) / 2]];
}

}  // namespace collectives::bench
