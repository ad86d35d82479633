// ValueEngine: interface to copy and reduce the values of Steps, in host memory or in GPU memory. A Step is one action
// of a rank. A Step takes values, may reduce them, and may store and send the result.
//
// The executor performs Steps. It calls an engine to copy and to fold (reduce) values. HostEngine does so in the
// calling thread, on host memory. Engines for GPU memory use GPUs. Algorithms therefore work for both kinds of memory.
#pragma once

#include <cstddef>
#include <span>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "steps/step.hpp"

namespace collectives {

/// Engine that performs requests: the calls of copy() and fold(). It performs the requests in the order of the calls,
/// at once or later.
class ValueEngine {
 public:
  virtual ~ValueEngine() = default;
  /// Returns whether each request is complete when its function returns. If so, the executor does not call end() and
  /// done().
  virtual bool is_immediate() const noexcept { return false; }
  /// Begins a Step, unless it is a host Step (a collective through shared memory). The Step may read memory of peers.
  /// Returns false if the Step cannot begin yet.
  virtual bool begin() = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Reduces `sources` into `out`, as fold() in reduction.hpp does.
  virtual void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                    std::size_t count, int finish_ranks) = 0;
  /// Ends the requests of a Step.
  virtual void end() = 0;
  /// Returns whether the requests of the Step are complete.
  virtual bool done() = 0;
  /// Starts a host Step: a collective that ranks of the host perform together. `with` must not change until the Step
  /// ends.
  virtual void begin_host_step(const Step& step, const HostOperands& with) = 0;
  /// Progresses the host Step without waiting. Returns whether the host Step has ended. Throws TagMismatch, whose
  /// `peer` is a rank of the communicator.
  virtual bool progress_host_step() = 0;
  /// Returns memory for a partial result. The previous partial result may be overwritten.
  virtual std::byte* work(std::size_t bytes) = 0;
};

}  // namespace collectives
