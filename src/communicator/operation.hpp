// Operation: one collective call, from its issue to its end. An operation that does not complete at once lies in the
// queue of its communicator until its end. A Work is the program's handle of an operation.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "device/path_executor.hpp"
#include "execution/executor.hpp"
#include "execution/multi_phase_operation.hpp"
#include "planning/planned_call.hpp"

namespace collectives {

struct Operation {
  enum class Phase : std::uint8_t { idle, queued, running, done, failed };

  /// State of the operation. It is written after all other fields. Another thread may read the other fields once
  /// `phase` shows the end.
  std::atomic<Phase> phase = Phase::idle;
  std::shared_ptr<const PlannedCall> call;
  Job job;
  MultiPhaseOperation* multi_phase = nullptr;  ///< phases, if there are several; `job` is the current one
  bool on_device = false;                      ///< whether the operation is on GPU memory, as `device` describes
  std::unique_ptr<DeviceCall> device;
  std::uint64_t sequence = 0;
  std::string name;                 ///< name of the tensor
  std::uint64_t issued_ticks = 0;   ///< time of issue, in ticks of the clock; 0: the start is the time of issue
  std::uint32_t sample_weight = 1;  ///< number of calls for which this call's duration counts; 0: it is not timed
  std::chrono::steady_clock::time_point issued{};
  std::chrono::nanoseconds timeout{};
  bool stall_reported = false;
  std::exception_ptr error;

  bool finished() const noexcept {
    const Phase now = phase.load(std::memory_order_acquire);
    return now == Phase::done || now == Phase::failed;
  }
  bool is_queued() const noexcept { return phase.load(std::memory_order_relaxed) == Phase::queued; }
  bool is_running() const noexcept { return phase.load(std::memory_order_relaxed) == Phase::running; }
  /// Returns whether a call that waits for the operation may return. A blocking call with a GPU stream returns as soon
  /// as all its work has been put into the stream.
  bool returns() const noexcept {
    return finished() || (on_device && device->in_flight && device->ends_in_stream && device->stream);
  }
  /// Marks the operation as queued. Requires that its other fields describe it already.
  void queue_again() noexcept {
    phase.store(Phase::queued, std::memory_order_relaxed);
    issued = {};
    stall_reported = false;
  }
};

/// State of a Work: its operation and further data of the handle. The communicator takes states from a pool, and a
/// state is used again when no handle refers to it any more.
struct Work::State : Operation {
  Communicator::Impl* owner = nullptr;  ///< null after the communicator was destroyed

  // Fields of a Group, which reduces its tensors by several operations. `members` are these operations. `finish` copies
  // their results back.
  std::function<void()> finish;  ///< owns buffers of `members`, so it is declared before them and destroyed after them
  std::vector<Work> members;
};

}  // namespace collectives
