// Multi-phase operation: an operation whose later Steps are known only after earlier messages have arrived. A Step is
// one action of a rank. An example is the exchange of the elements that top-k selects. The operation consists of
// phases, each with its own Steps. The Steps of a phase are known when the phase begins.
//
// The executor performs each phase as one Job (job.hpp). An operation without phases is one Job, too. Deadlines,
// mismatches and failures are handled as in every call. Between two phases, the operation computes on this rank without
// messages. The operation stays at the head of the communicator's queue until its last phase has ended. All ranks
// therefore perform all operations in the same order.
#pragma once

#include <memory>

#include "execution/job.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Returns an Algorithm that emits the Steps of one phase. It is not in the table from which plans are chosen.
constexpr Algorithm phase_algorithm(std::string_view name, void (*emit)(const RankView&, const RoundArgs&, StepSink&)) {
  return {"", name, nullptr, "", nullptr, nullptr, nullptr, emit};
}

class MultiPhaseOperation {
 public:
  virtual ~MultiPhaseOperation() = default;
  /// Describes the next phase in `job`, except for the tag. Returns false if there is no further phase, because the
  /// operation has completed. Throws if the operation fails. A throw on one rank makes the operation fail on all ranks.
  /// The caller puts the operation's name before the error text.
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
