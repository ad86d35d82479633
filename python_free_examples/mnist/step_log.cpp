// Implementation of the log of training steps. The time of a step is the mean of its times on all ranks. Medians and
// percentiles are computed from these means.
#include "step_log.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mnist {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  // position of the result, counted from 1, after sorting
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::ranges::nth_element(values, at);
  return *at;
}

void StepLog::add(double loss, double seconds, const CommunicationTimes& communication) {
  loss_.push_back(loss);
  seconds_.push_back(seconds);
  exposed_.push_back(communication.exposed);
  hidden_.push_back(communication.hidden);
}

StepTimes StepLog::times(collectives::Communicator& comm, std::size_t first) const {
  const std::size_t count = steps() - first;
  if (count == 0) return {};
  const auto over_ranks = [&](const std::vector<double>& column) {
    std::vector<double> mean(column.begin() + static_cast<std::ptrdiff_t>(first), column.end());
    comm.all_reduce(mean, collectives::ReduceOp::average);
    return mean;
  };
  const auto mean_ms = [&](const std::vector<double>& column) {
    return 1e3 * std::accumulate(column.begin(), column.end(), 0.0) / static_cast<double>(count);
  };
  const std::vector<double> seconds = over_ranks(seconds_);
  const double exposed_ms = mean_ms(over_ranks(exposed_)), hidden_ms = mean_ms(over_ranks(hidden_));
  return {1e3 * quantile(seconds, 0.5), 1e3 * quantile(seconds, 0.95), mean_ms(seconds) - exposed_ms, exposed_ms,
          hidden_ms};
}

std::vector<double> StepLog::losses(collectives::Communicator& comm) const {
  std::vector<double> sums = loss_;
  comm.all_reduce(sums);
  return sums;
}

}  // namespace mnist
