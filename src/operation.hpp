// One collective call on its way: what Work is a handle of, and what a communicator's queue consists of.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "compression/sparse_plan.hpp"
#include "device/way.hpp"
#include "executor.hpp"
#include "process_page.hpp"
#include "program.hpp"
#include "signature.hpp"

namespace collectives {

/// A plan with what belongs to it: kept by the communicator, shared by the calls that use it.
struct PlannedCall {
  Request request;
  Signature signature;
  std::vector<std::size_t> offsets;  ///< where the parts of a v-variant begin, and the end
  Plan plan;
  Parts parts;
  /// What the Steps do. A call of no elements is a barrier that carries its signature: ranks that disagree are noticed,
  /// and nobody runs ahead by more calls than the records hold.
  Collective performed = Collective::barrier;
  std::uint64_t hash = 0;  ///< of the signature
  SignatureWords words{};
  OperationShape shape;           ///< what is written down of it
  bool waits_for_nobody = false;  ///< this rank
  /// Of a call with a compressor; `plan` is then what is done where everything is sent.
  std::optional<SparsePlan> sparse;
  /// Set where the plan is a single host Step: it is then entered without emitting it first.
  std::optional<HostCall> at_once;
};

/// The state behind a Work. Comes from the communicator's pool and goes back there when nobody refers to it.
struct Work::State {
  enum class Phase : std::uint8_t { idle, queued, running, done, failed };

  Communicator::Impl* owner = nullptr;     ///< null when the communicator is gone
  std::atomic<Phase> phase = Phase::idle;  ///< written last: a progress thread may finish the operation
  std::shared_ptr<const PlannedCall> call;
  Job job;
  Program* program = nullptr;  ///< of several stages: `job` is the one under way
  bool on_device = false;      ///< and then what `device` says
  std::unique_ptr<DeviceCall> device;
  std::uint64_t sequence = 0;
  std::string name;                ///< of the tensor
  std::uint64_t issued_ticks = 0;  ///< 0: when it started
  std::uint32_t stands_for = 1;    ///< so many are taken to have lasted as long; 0: it is not timed
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
