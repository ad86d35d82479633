// Times and losses of single steps. Every rank keeps its own log. A report combines the logs of all ranks.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "buckets.hpp"

namespace mnist {

/// Milliseconds of a step, averaged over ranks. Computing and exposed time (waiting for communication) are means over
/// the steps, and their sum is the mean time of a step. Hidden time is that of communication while the step computes.
struct StepTimes {
  double median_ms = 0, p95_ms = 0;  ///< median and 95th percentile of the time of a step
  double compute_ms = 0, exposed_ms = 0, hidden_ms = 0;
};

/// Returns the smallest of `values` that at least `share` of them do not exceed. Returns 0 for no values.
double quantile(std::vector<double> values, double share);

class StepLog {
 public:
  void add(double loss, double seconds, const CommunicationTimes& communication);

  std::size_t steps() const { return loss_.size(); }
  /// Collective. Returns the times of steps [first, steps()), equal on all ranks.
  StepTimes times(collectives::Communicator& comm, std::size_t first = 0) const;
  /// Collective. Returns the loss of every step, summed over all ranks.
  std::vector<double> losses(collectives::Communicator& comm) const;

 private:
  std::vector<double> loss_, seconds_, exposed_, hidden_;  // values of this rank, one for each step
};

}  // namespace mnist
