// ValueEngine: works on the values of Steps, where these values lie.
//
// The executor asks an engine to copy and to fold values. HostEngine works on host memory with this thread. An engine
// of a device path works on GPU memory. GPUs therefore need no algorithms of their own.
#pragma once

#include <cstddef>
#include <span>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "steps/step.hpp"

namespace collectives {

/// Performs requests in order, at once or some time after they were made.
class ValueEngine {
 public:
  virtual ~ValueEngine() = default;
  /// Returns whether each request is complete when its function returns. end() and done() are then not called.
  virtual bool is_immediate() const noexcept { return false; }
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
  /// Starts a host Step, in which ranks of the host synchronize. `with` must not change until the Step ends.
  virtual void begin_host_step(const Step& step, const HostOperands& with) = 0;
  /// Performs what is possible now. Returns whether the host Step has ended. Throws TagMismatch, whose `peer` is a
  /// rank.
  virtual bool progress_host_step() = 0;
  /// Returns memory for a partial result. The partial result before it is no longer used.
  virtual std::byte* work(std::size_t bytes) = 0;
};

}  // namespace collectives
