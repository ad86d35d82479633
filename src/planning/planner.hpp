// The plans of a communicator, each made once for all calls alike.
//
// Calls are alike when they have the same signature, which is also what ranks compare, and the same counts of parts.
// The first of them is planned: a plan is chosen, the parts of its vector are laid out, and where all is one host
// stage, that is described as well, so that the executor may enter it without emitting Steps. The others find what was
// made: the last call by comparison, any other by the hash of its signature. What a plan is kept under holds nothing
// that differs between ranks, so all ranks plan alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "call.hpp"
#include "collectives/communicator.hpp"
#include "executor.hpp"
#include "meet.hpp"
#include "operation.hpp"

namespace collectives {

/// What the Steps of a planned call are to achieve.
Task task_of(const PlannedCall& planned);

/// Of one communicator, whose calls come one at a time.
class Planner {
 public:
  /// All three outlive it.
  Planner(const Settings& settings, const Meeting& meeting, const Executor& executor)
      : settings_(settings), meeting_(meeting), executor_(executor) {}

  /// The plan of a call, whose arguments have been checked; good until the next one is asked for. A new one is made in
  /// microseconds, or milliseconds between many hosts. Throws Error: invalid_argument for a backend, codec or
  /// compressor that cannot be, unsupported for one that cannot do this.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options);
  /// Of a call that is not made: there is no memory to check.
  std::shared_ptr<const PlannedCall> plan_of(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                             const Options& options);
  /// Has no plans any more: the tuning has changed.
  void forget() noexcept;

 private:
  std::shared_ptr<const PlannedCall> make(const Call& call, const Options& options, const Codec* codec, std::size_t k,
                                          const Signature& signature) const;

  const Settings& settings_;
  const Meeting& meeting_;
  const Executor& executor_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const PlannedCall>> plans_;  // by the hash of the signature
  std::shared_ptr<const PlannedCall> last_;
};

}  // namespace collectives
