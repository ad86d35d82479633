// Multi-phase operation: an operation of several phases, such as a sparse exchange. The messages of a phase depend on
// the messages received before it.
//
// Each phase is a Job like any other, with Steps of its own. Deadlines, mismatches and failures are therefore handled
// as in every call. Between two phases the operation works on this rank alone. It stays at the head of the queue until
// its last phase has ended. All ranks therefore perform all operations in the same order.
#pragma once

#include <memory>

#include "execution/job.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Returns an Algorithm for the Steps of one phase. It is not in the table from which plans are chosen.
constexpr Algorithm phase_algorithm(std::string_view name, void (*emit)(const RankView&, const RoundArgs&, StepSink&)) {
  return {"", name, nullptr, "", nullptr, nullptr, nullptr, emit};
}

class MultiPhaseOperation {
 public:
  virtual ~MultiPhaseOperation() = default;
  /// Describes the next phase in `job`, except for the tag. Returns false if there is no further phase: the operation
  /// has completed. Throws the error of the operation, on all ranks. The caller puts the operation's name before the
  /// error text.
  virtual bool next(Job& job) = 0;
  /// Does some microseconds of work without messages, such as writing zeros of the result. Called while the executor
  /// waits for peers. Returns false when no such work is left.
  virtual bool local_work() { return false; }
  /// Ends the operation after a failure, on this rank or another.
  virtual void abandon() noexcept = 0;
  /// Called when the issuer has seen the end of the operation. All ranks call it at the same place in the program.
  virtual void released() noexcept = 0;
};

}  // namespace collectives
