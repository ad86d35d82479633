// Implementation of the load check of the performance guidelines, which finds other load on the machine by the times of
// barriers.
#include "collectives_bench/guidelines_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "collectives_bench/statistics.hpp"
#include "collectives_bench/stopwatch.hpp"

namespace collectives::bench {

namespace {

constexpr double kBeforeSeconds = 0.2;  // some fifty time slices of another program, which are 3 to 4 ms
constexpr double kTrialSeconds = 0.001, kBetweenSeconds = 0.002;
constexpr double kLeastSeconds = 0.02;  // barriers between the measurements are judged from this time on
/// Microseconds of a loop of barriers. A loop is short against a time slice, and long against a reading of the clock.
constexpr double kLoopUs = 20;

bool is_oversubscribed(const Topology& topology) {
  for (std::size_t host = 0; host < topology.hosts.size(); ++host)
    if (topology.oversubscribed(host)) return true;
  return false;
}

}  // namespace

BarrierLoad load_of(std::span<const double> times) {
  const double middle = median(times);
  const double total = std::accumulate(times.begin(), times.end(), 0.0);
  double above = 0;
  for (const double time : times) above += std::max(0.0, time - middle);
  return {middle, total > 0 ? above / total : 0};
}

LoadLimits limits_for(const Topology& topology) {
  // On an idle machine, barriers lose less than 10 % of the time. On a virtual machine with busy neighbours, they lose
  // up to 28 %. A second program on a core takes half of the time. If ranks share a core, an idle machine loses up to
  // 20 %.
  constexpr double kLost = 0.35, kLostOversubscribed = 0.5;
  // Ranks on cores of their own need about 1 us, and less than 1 us more for each further rank. Two ranks that share a
  // core need 20 us or more.
  constexpr double kMedianUs = 8, kMedianUsPerRank = 1;
  // Cores of a virtual machine may move, after which a barrier takes up to three times as long.
  constexpr double kSlowdown = 4;
  if (is_oversubscribed(topology)) return {0, kLostOversubscribed, kSlowdown};
  const double median = topology.one_host() ? kMedianUs + kMedianUsPerRank * topology.ranks() : 0;
  return {median, kLost, kSlowdown};
}

std::optional<std::string> reason_of_load(const BarrierLoad& before, const std::optional<BarrierLoad>& during,
                                          const LoadLimits& limits) {
  const auto reason_in = [&](const BarrierLoad& load, const char* when) -> std::optional<std::string> {
    if (limits.median_us > 0 && load.median_us > limits.median_us)
      return fmt::format("a barrier took {:.1f} us {} the measurements, limit {:.1f} us", load.median_us, when,
                         limits.median_us);
    if (load.lost > limits.lost)
      return fmt::format("barriers lost {:.0f} % of the time {} the measurements, limit {:.0f} %", load.lost * 100,
                         when, limits.lost * 100);
    return std::nullopt;
  };
  if (auto reason = reason_in(before, "before")) return reason;
  if (!during) return std::nullopt;
  if (auto reason = reason_in(*during, "during")) return reason;
  if (during->median_us > limits.slowdown * before.median_us)
    return fmt::format("a barrier took {:.1f} us during the measurements, {:.1f} us before, limit {:.0f} times as long",
                       during->median_us, before.median_us, limits.slowdown);
  return std::nullopt;
}

LoadCheck::LoadCheck(Communicator& comm) : comm_(comm), limits_(limits_for(comm.topology())) {
  std::vector<double> times;
  time_barriers(kTrialSeconds, times);
  std::uint64_t loop[] = {static_cast<std::uint64_t>(std::max(1.0, kLoopUs / std::max(median(times), 0.01)))};
  comm_.broadcast(loop, 0);
  loop_ = loop[0];
  begin();
}

void LoadCheck::begin() {
  std::vector<double> times;
  time_barriers(kBeforeSeconds, times);
  before_ = load_of(times);
  during_.clear();
}

void LoadCheck::observe() { time_barriers(kBetweenSeconds, during_); }

std::optional<std::string> LoadCheck::reason() const {
  const double us = std::accumulate(during_.begin(), during_.end(), 0.0) * static_cast<double>(loop_);
  const bool is_enough = us >= kLeastSeconds * 1e6;
  return reason_of_load(before_, is_enough ? std::optional(load_of(during_)) : std::nullopt, limits_);
}

std::string LoadCheck::description() const {
  const BarrierLoad during = load_of(during_);
  return fmt::format(
      "a barrier took {:.2f} us before and {:.2f} us between the measurements; barriers lost {:.0f} % and {:.0f} % of "
      "the time",
      before_.median_us, during.median_us, before_.lost * 100, during.lost * 100);
}

void LoadCheck::time_barriers(double seconds, std::vector<double>& times) {
  constexpr std::size_t kLoops = 20;  // loops after which rank 0 looks at the clock for all ranks
  std::vector<double> here;
  const Stopwatch all;
  std::uint8_t more[] = {1};
  while (more[0] != 0) {
    comm_.barrier();
    for (std::size_t loop = 0; loop < kLoops; ++loop) {
      const Stopwatch one;
      for (std::size_t i = 0; i < loop_; ++i) comm_.barrier();
      here.push_back(one.microseconds() / static_cast<double>(loop_));
    }
    more[0] = static_cast<std::uint8_t>(all.seconds() < seconds);
    comm_.broadcast(more, 0);
  }
  comm_.all_reduce(here, ReduceOp::max);
  times.insert(times.end(), here.begin(), here.end());
}

}  // namespace collectives::bench
