// The work that an executor is given: one operation, or one stage of it.
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

/// What comes and goes in rounds while an operation is performed.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Whether the input of `round` is there, as that of all before it is. Asked before every Step.
  virtual bool ready(std::size_t round) = 0;
  /// The result of the first `rounds` rounds is there, and stays.
  virtual void done(std::size_t rounds) = 0;
};

/// Works on values that are not in memory of the host. What it is asked for is done in order, and some time later.
class ValueEngine {
 public:
  virtual ~ValueEngine() = default;
  /// Asked before each Step, which may reach into what peers have sent. False: not now.
  virtual bool begin() = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// As fold() in reduction.hpp.
  virtual void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                    std::size_t count, int finish_ranks) = 0;
  /// Nothing more of this Step.
  virtual void end() = 0;
  /// Whether that is done.
  virtual bool done() = 0;
  /// Whether `peer` reads what it is sent from where it lies. Else it is written to a frame first.
  virtual bool reads_in_place(Rank peer) const = 0;
  /// A host Step, whose ranks meet there.
  virtual void begin_host_step(const HostTask& task, const HostOperands& with) = 0;
  virtual bool advance_host_step() = 0;
  /// Room for a partial result. What was there before is used no longer.
  virtual std::byte* work(std::size_t bytes) = 0;
};

/// Everything one operation is made of. Addresses are of element 0 of the vector of the call, as if the buffers held
/// all of it: a buffer that holds one part only is addressed from where element 0 would be.
struct Job {
  const Plan* plan = nullptr;
  RoundArgs args;  ///< `parts` of the whole vector; the executor takes them round by round
  ReduceOp op;
  DataType type = DataType::f32;
  const Codec* codec = nullptr;  ///< of messages, of f32 values; null: they hold values as they are
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t tag = 0;
  InputStream* input_stream = nullptr;  ///< null: all of the input is there
  /// The whole operation, where it is a single host Step, and what that works on (without the tag).
  const HostCall* single_step = nullptr;
  HostOperands host = {};
};

}  // namespace collectives
