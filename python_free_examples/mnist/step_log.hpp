// Log of training steps: time and loss of each step. Every rank has a log of its own, and a report combines the logs of
// all ranks.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "buckets.hpp"

namespace mnist {

/// Times of a step in milliseconds, averaged over the ranks. In exposed time, the step waits for communication. The
/// rest of a step is computing time. Hidden time is that part of the computing time in which communication is in
/// progress. These three times are means over the steps.
struct StepTimes {
  double median_ms = 0, p95_ms = 0;  ///< median and 95th percentile of the time of a step
  double compute_ms = 0, exposed_ms = 0, hidden_ms = 0;
};

/// Returns a quantile: the smallest value such that at least `share` (0 to 1) of all values are not larger. Returns 0
/// for no values.
double quantile(std::vector<double> values, double share);

class StepLog {
 public:
  void add(double loss, double seconds, const CommunicationTimes& communication);

  std::size_t steps() const { return loss_.size(); }
  /// Returns the times over the steps from `first` on. All ranks must call this function. The results are equal.
  StepTimes times(collectives::Communicator& comm, std::size_t first = 0) const;
  /// Returns the loss of every step, summed over all ranks. All ranks must call this function.
  std::vector<double> losses(collectives::Communicator& comm) const;

 private:
  std::vector<double> loss_, seconds_, exposed_, hidden_;  // one value per step, of this rank only
};

}  // namespace mnist
