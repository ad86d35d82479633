// Job: describes the work that the executor performs. A job is one operation, or one phase of an operation that has
// several phases (multi_phase_operation.hpp).
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

/// Input of a job that arrives in pieces. The caller also takes the output in pieces. Each round handles one piece: it
/// performs all Steps (actions of a rank) on one segment of each part of the vector. The Steps keep the order of the
/// plan. The result therefore has the same bits as if all input were there at the start. Price: the executor calls
/// ready() before every Step.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Returns whether the input of `round` and of all rounds before it has arrived.
  virtual bool ready(std::size_t round) = 0;
  /// Reports that the results of the first `rounds` rounds are final.
  virtual void done(std::size_t rounds) = 0;
};

/// Description of one operation or phase. `input` and `output` are addresses of element 0 of the whole vector. If a
/// buffer holds only one part of the vector, the address is the one at which element 0 would lie.
struct Job {
  const Plan* plan = nullptr;
  RoundArgs args;  ///< arguments of the algorithm; `parts` cover the whole vector
  ReduceOp op;
  DataType type = DataType::f32;
  const Codec* codec = nullptr;  ///< codec of messages, for f32 values; null: messages hold the values themselves
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t tag = 0;
  InputStream* input_stream = nullptr;  ///< source of input that arrives in rounds; null: all input is there
  /// Intra-host collective, if it is the only Step of the operation. `host` holds its operands. Null: the algorithm of
  /// the plan emits the Steps.
  const HostCall* single_step = nullptr;
  HostOperands host = {};
};

}  // namespace collectives
