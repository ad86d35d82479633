// One collective call on its way: what Work is a handle of, and what a communicator's queue consists of.
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

/// The state behind a Work. Comes from the communicator's pool and goes back there when nobody refers to it.
struct Work::State {
  enum class Phase : std::uint8_t { idle, queued, running, done, failed };

  Communicator::Impl* owner = nullptr;     ///< null when the communicator is gone
  std::atomic<Phase> phase = Phase::idle;  ///< written last: a progress thread may finish the operation
  std::shared_ptr<const PlannedCall> call;
  Job job;
  MultiPhaseOperation* multi_phase = nullptr;  ///< of several stages: `job` is the one under way
  bool on_device = false;                      ///< and then what `device` says
  std::unique_ptr<DeviceCall> device;
  std::uint64_t sequence = 0;
  std::string name;                 ///< of the tensor
  std::uint64_t issued_ticks = 0;   ///< 0: when it started
  std::uint32_t sample_weight = 1;  ///< so many are taken to have lasted as long; 0: it is not timed
  std::chrono::steady_clock::time_point issued{};
  std::chrono::nanoseconds timeout{};
  bool stall_reported = false;
  std::exception_ptr error;

  // Of a fused group: the operations it consists of, and what is left to do when they have finished.
  std::function<void()> finish;  ///< keeps what the members work on; they are declared later to die earlier
  std::vector<Work> members;

  bool finished() const noexcept {
    const Phase now = phase.load(std::memory_order_acquire);
    return now == Phase::done || now == Phase::failed;
  }
};

}  // namespace collectives
