// What single steps cost and gave. Every rank writes its own log; where a report is due, the ranks' logs become one.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "buckets.hpp"

namespace mnist {

/// Milliseconds of a step, over some steps: each step's are the mean over the ranks. Compute and exposed are means and
/// add up to the mean step; hidden is communication under way while the step computed.
struct StepTimes {
  double median_ms = 0, p95_ms = 0;  ///< of whole steps
  double compute_ms = 0, exposed_ms = 0, hidden_ms = 0;
};

/// The smallest of `values` that at least `share` of them do not exceed; 0 of none.
double quantile(std::vector<double> values, double share);

class StepLog {
 public:
  void add(double loss, double seconds, const CommunicationTimes& communication);

  std::size_t steps() const { return loss_.size(); }
  /// Of steps [first, steps()). Every rank calls it and is told the same.
  StepTimes times(collectives::Communicator& comm, std::size_t first = 0) const;
  /// The summed loss of every step, over all ranks. Every rank calls it.
  std::vector<double> losses(collectives::Communicator& comm) const;

 private:
  std::vector<double> loss_, seconds_, exposed_, hidden_;  // of this rank, by step
};

}  // namespace mnist
