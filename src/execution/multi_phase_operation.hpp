// An operation of several stages: what comes next depends on what has come. Stages are Jobs like any other; between two
// of them the program works on this rank alone. It stays at the head of the queue all the time, so ranks agree on the
// order of everything.
#pragma once

#include <memory>

#include "execution/job.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// The Steps of a stage, which nobody chooses.
constexpr Algorithm phase_algorithm(std::string_view name, void (*emit)(const RankView&, const RoundArgs&, StepSink&)) {
  return {"", name, nullptr, "", nullptr, nullptr, nullptr, emit};
}

class MultiPhaseOperation {
 public:
  virtual ~MultiPhaseOperation() = default;
  /// Describes the next stage in `job`, whose tag stays; false when there is none, and the operation is done. Throws
  /// what the operation fails with, on all ranks; the text needs no operation, which is put in front.
  virtual bool next(Job& job) = 0;
  /// What this rank has to do anyhow and can do now, while others are waited for: a little of it, some microseconds.
  /// False when nothing is left of it.
  virtual bool local_work() { return false; }
  /// The operation has failed, here or elsewhere.
  virtual void abandon() noexcept = 0;
  /// Whoever issued the operation knows that it has ended: on all ranks at the same place in the program.
  virtual void released() noexcept = 0;
};

}  // namespace collectives
