// Job: work of an executor. It is one operation, or one phase of a multi-phase operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/plan.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Input and output of an operation in rounds. The order of the Steps stays that of the plan. The bits of the result
/// therefore do, too. Price: one query per Step.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Returns whether the input of `round` and of all rounds before it has arrived. Called before every Step.
  virtual bool ready(std::size_t round) = 0;
  /// Reports that the results of the first `rounds` rounds are final.
  virtual void done(std::size_t rounds) = 0;
};

/// Works on values that are not in host memory. It performs requests in order, some time after they were made.
class ValueEngine {
 public:
  virtual ~ValueEngine() = default;
  /// Called before each Step, which may read what peers have sent. Returns false if the Step cannot begin yet.
  virtual bool begin() = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Folds as fold() in reduction.hpp does.
  virtual void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                    std::size_t count, int finish_ranks) = 0;
  /// Ends the requests of a Step.
  virtual void end() = 0;
  /// Returns whether the requests of the Step are complete.
  virtual bool done() = 0;
  /// Returns whether `peer` reads sent values where they lie. Otherwise they are copied into a frame first.
  virtual bool reads_in_place(Rank peer) const = 0;
  /// Starts a host Step, in which the ranks of the host synchronize.
  virtual void begin_host_step(const HostTask& task, const HostOperands& with) = 0;
  virtual bool progress_host_step() = 0;
  /// Returns memory for a partial result. The partial result before it is no longer used.
  virtual std::byte* work(std::size_t bytes) = 0;
};

/// Description of one operation. `input` and `output` are addresses of element 0 of the whole vector. A buffer that
/// holds only one part is addressed from where element 0 would be.
struct Job {
  const Plan* plan = nullptr;
  RoundArgs args;  ///< `parts` of the whole vector; the executor takes them round by round
  ReduceOp op;
  DataType type = DataType::f32;
  const Codec* codec = nullptr;  ///< codec of messages, for f32 values; null: messages hold the values themselves
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t tag = 0;
  InputStream* input_stream = nullptr;  ///< null: all input has arrived
  /// The whole operation, if it is a single host Step, and its operands. Null: the plan emits the Steps.
  const HostCall* single_step = nullptr;
  HostOperands host = {};
};

}  // namespace collectives
