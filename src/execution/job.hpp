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
