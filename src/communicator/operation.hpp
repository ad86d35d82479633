// Operation: one collective call, from its issue to its end. An operation that does not complete at once is in the
// OperationQueue of its communicator until it ends. A Work is the program's handle of an asynchronous operation.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "device/path_executor.hpp"
#include "execution/counted_exchange.hpp"
#include "execution/executor.hpp"
#include "execution/multi_phase_operation.hpp"
#include "planning/planned_call.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

struct Operation {
  enum class Phase : std::uint8_t { idle, queued, running, done, failed };

  /// Phase of the operation. At the end of the operation, `phase` is written last. When `phase` is `done` or `failed`,
  /// another thread may therefore read the other fields.
  std::atomic<Phase> phase = Phase::idle;
  std::shared_ptr<const PlannedCall> call;
  Job job;
  MultiPhaseOperation* multi_phase = nullptr;  ///< gives the next phase, if there are several; `job` is the current one
  std::unique_ptr<CountedExchange> counted;    ///< phases of a call whose ranks must exchange counts; null: none yet
  bool on_device = false;                      ///< whether the operation is on GPU memory, as `device` describes
  std::unique_ptr<DeviceCall> device;
  std::uint64_t sequence = 0;
  std::string name;                 ///< name of the tensor
  std::string group_names;          ///< names of the tensors of a pack (group_pack.hpp); empty: there is one tensor
  std::uint64_t hash = 0;           ///< hash of the signature and the names, which all ranks compare
  bool has_details = false;         ///< whether the call has names or other details for error texts
  bool refused = false;             ///< whether this rank has refused the call; the operation then moves no data
  std::uint64_t issued_ticks = 0;   ///< time of issue, in ticks of the clock; 0: equal to the time of the start
  std::uint32_t sample_weight = 1;  ///< number of calls that this call's duration represents; 0: it is not timed
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
  /// Returns the names that ranks compare.
  std::string_view names() const noexcept { return group_names.empty() ? name : group_names; }
  /// Returns whether a blocking call that waits for the operation may return. A blocking call with a GPU stream may
  /// return as soon as all work of the operation is in streams.
  bool returns() const noexcept {
    return finished() || (on_device && device->in_flight && device->ends_in_stream && device->stream);
  }
  /// Marks the operation as queued. Requires that its other fields are filled in.
  void queue_again() noexcept {
    phase.store(Phase::queued, std::memory_order_relaxed);
    issued = {};
    stall_reported = false;
  }
};

/// State of a Work: an operation and further data of the handle. The communicator takes the state of a call from a
/// pool. It uses the state again when no Work refers to the state any more.
struct Work::State : Operation {
  Communicator::Impl* owner = nullptr;  ///< null for a Group, and after the communicator was destroyed

  /// Blocks until the operation has ended or `until` has passed. Returns whether it has ended. Does nothing and returns
  /// true without an owner.
  bool wait_until(Deadline until);
  /// Progresses operations without waiting. Returns whether this one has ended. Returns true without an owner.
  bool test();

  // Fields of a point-to-point call. `message` is then the operation, and the fields of Operation are unused until it
  // ends.
  bool is_message = false;
  MessageOperation message;
  /// Takes over the end of `message`. Does nothing if it has not ended.
  void conclude_message() noexcept {
    if (!is_message || finished() || !message.ended()) return;
    error = message.error;
    phase.store(error == nullptr ? Phase::done : Phase::failed, std::memory_order_release);
  }

  // Fields of a Group, which reduces its tensors by several operations. `members` holds the Works of these operations.
  // `finish` copies packed results to the outputs of the tensors.
  std::function<void()> finish;  ///< owns buffers of `members`, so it is declared before and destroyed after `members`
  std::vector<Work> members;
};

}  // namespace collectives
