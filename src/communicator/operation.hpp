// Operation: the state of one collective call. A Work is a handle of it, and a communicator's queue holds it.
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

/// State of a Work. The communicator's pool provides it, and uses it again when no handle refers to it any more.
struct Work::State {
  enum class Phase : std::uint8_t { idle, queued, running, done, failed };

  Communicator::Impl* owner = nullptr;     ///< null after the communicator was destroyed
  std::atomic<Phase> phase = Phase::idle;  ///< written last, because a progress thread may finish the operation
  std::shared_ptr<const PlannedCall> call;
  Job job;
  MultiPhaseOperation* multi_phase = nullptr;  ///< set for an operation of several phases; `job` is the current one
  bool on_device = false;                      ///< whether `device` describes the operation
  std::unique_ptr<DeviceCall> device;
  std::uint64_t sequence = 0;
  std::string name;                 ///< name of the tensor
  std::uint64_t issued_ticks = 0;   ///< time of issue; 0: the time of the start counts
  std::uint32_t sample_weight = 1;  ///< number of calls that this duration stands for; 0: not timed
  std::chrono::steady_clock::time_point issued{};
  std::chrono::nanoseconds timeout{};
  bool stall_reported = false;
  std::exception_ptr error;

  // Members of a fused group, and the work that is left when they have finished.
  std::function<void()> finish;  ///< keeps memory of the members, which are declared later and destroyed earlier
  std::vector<Work> members;

  bool finished() const noexcept {
    const Phase now = phase.load(std::memory_order_acquire);
    return now == Phase::done || now == Phase::failed;
  }
};

}  // namespace collectives
