// Multi-phase operation: an operation that consists of phases, each with its own Steps. A Step is one action of a rank.
// The Steps of a phase depend on messages of earlier phases, and are known when the phase begins. An example is the
// exchange of the elements that top-k selects.
//
// The executor performs each phase as one Job (job.hpp), and any other operation as a single Job. Deadlines, mismatches
// and failures are handled as in every operation. Between two phases, the operation computes on this rank without
// messages. The operation stays at the head of the communicator's queue until its last phase has ended. All ranks
// therefore perform all operations in the same order.
#pragma once

#include <memory>

#include "execution/job.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Returns an Algorithm that emits the Steps of one phase. The planner does not choose it, because it is not in the
/// table of algorithms.
constexpr Algorithm phase_algorithm(std::string_view name, void (*emit)(const RankView&, const RoundArgs&, StepSink&)) {
  return {"", name, nullptr, "", nullptr, nullptr, nullptr, emit};
}

class MultiPhaseOperation {
 public:
  virtual ~MultiPhaseOperation() = default;
  /// Fills in `job`, except for the tag, for the next phase. Returns false if the operation has completed and has no
  /// further phase. Throws if the operation fails. An error on one rank makes the operation fail on all ranks. The
  /// caller puts the operation's name before the error text.
  virtual bool next(Job& job) = 0;
  /// Does some microseconds of work without messages, such as to set elements of the result to zero. Called while the
  /// executor waits for peers. Returns false when no such work is left.
  virtual bool local_work() { return false; }
  /// Ends the operation after a failure, on this rank or another.
  virtual void abandon() noexcept = 0;
  /// Called when the program has waited for the end of the operation. The program does so at the same point on all
  /// ranks.
  virtual void released() noexcept = 0;
};

}  // namespace collectives
