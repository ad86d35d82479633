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

/// Input that arrives while the job is performed, for example by copies from a GPU. The executor performs a job in
/// rounds. Each round processes one segment of each part of the vector. A round begins when its segments have arrived.
/// When a round has ended, its results may be copied away. The order of Steps (actions of a rank) is the same as
/// without an InputStream, so the result has the same bits. Price: the executor calls ready() before every Step.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Returns whether the input of `round` and of all earlier rounds has arrived.
  virtual bool ready(std::size_t round) = 0;
  /// Reports that the results of the first `rounds` rounds are final.
  virtual void done(std::size_t rounds) = 0;
};

/// Description of one operation or phase. `input` and `output` are addresses of element 0 of the whole vector. If a
/// buffer holds only one part of the vector, element 0 lies outside of the buffer. Its address is then computed from
/// the position of the part.
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
