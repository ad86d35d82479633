// Communicator::Impl: the path of a call from the public function to the parts of the communicator.
//
// run() and issue() check a call and get its plan. run() performs a blocking call. It first makes some attempts to
// complete the call outside the queue of operations. If none of them completes it, the call enters the queue. issue()
// queues every call. The comments at the top of these files explain the parts:
//
//   CommunicatorResources  values, connections and executors, made at construction (communicator_resources.hpp)
//   OperationQueue         order, progress, failure and waits (operation_queue.hpp)
//   RepeatedCall           a blocking call that repeats the last one (repeated_call.hpp)
//   DeviceCalls            operations on device memory (device_calls.hpp)
//   DeviceMemories         allocated and registered device memory (device_memories.hpp)
//   ProgressThread         the lock, the thread, and the progress list (progress_thread.hpp)
//   OperationPool          states that are used again (operation_pool.hpp)
//
// A child made by fork() has its parent's connections and arena, the memory that ranks of a host share. It has none of
// its parent's threads. Calls on an inherited communicator are refused, and its destructor does nothing. Price: each
// call loads the number of forks once, to recognize a child. A child keeps what it has inherited until it ends.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/fork.hpp"
#include "collectives/communicator.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/device_memories.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_pool.hpp"
#include "communicator/operation_queue.hpp"
#include "communicator/progress_thread.hpp"
#include "communicator/repeated_call.hpp"
#include "core/call.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN Communicator::Impl final {
  using Visibility = CommunicatorResources::Visibility;
  /// Constructs as CommunicatorResources does.
  Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
       Visibility visibility = Visibility::visible, std::unique_ptr<NcclComm> nccl_comm = nullptr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Returns whether this process is a forked child of the one that made the communicator. A child must not touch the
  /// communicator's arena, connections and threads.
  bool inherited() const noexcept { return !owner_process.is_current(); }
  /// Throws Error{invalid_argument} in such a child. `operation`: name of the refused operation.
  void check_process(std::string_view operation) const {
    if (inherited()) refuse_in_child(operation);
  }
  void check_process(Collective collective) const {
    if (inherited()) refuse_in_child(to_string(collective));
  }
  /// Releases an inherited communicator. Closes, ends and sends nothing.
  static void leave_to_parent(std::unique_ptr<Impl> inherited) noexcept;

  /// Checks, plans and performs a call. Throws its error.
  void run(Call&& call, const Options& options);
  /// Checks and plans a call and puts it into the queue.
  /// `refused`: the error that place() returned for the tensors of this call.
  std::shared_ptr<Work::State> issue(Call call, const Options& options, std::exception_ptr refused = nullptr);
  /// Determines whether the buffers are in host or device memory, as DeviceCalls::place() does.
  std::exception_ptr place(Call& call, const Options& options) const { return device_calls_.place(call, options); }
  /// Returns the plan of a call whose arguments have been checked. It is valid until the next plan(). Throws Error as
  /// Planner::plan() and TopK do.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options);
  /// Returns the plan of a call that is not made: it has no buffers to check.
  std::shared_ptr<const PlannedCall> plan_of(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                             const Options& options);
  /// Blocks until `state` has finished or `until` has passed. Returns whether it has finished.
  bool wait_until(Work::State& state, Deadline until);
  bool test(Work::State& state);
  void progress();
  /// Returns the NCCL communicator of the ranks with the same color. Returns null for a negative color, or if NCCL does
  /// not connect these ranks. All ranks call it.
  std::unique_ptr<NcclComm> split_nccl_comm(int color, int key);
  /// Allocates memory on this rank's GPU, or registers the program's memory. Waits until no operation is queued or in
  /// flight.
  DeviceMemory allocate_on_device(std::size_t bytes);
  DeviceMemory register_memory(std::byte* data, std::size_t bytes);
  /// Removes `memory` from this communicator.
  void forget(DeviceAllocation& memory) noexcept;
  /// Returns the result of `get(resources, queue)`, which only reads counters. A forked child takes no lock, because no
  /// thread of it writes.
  template <class Get>
  auto read(Get&& get) {
    const auto lock = inherited() ? OperationQueue::Lock() : progress_thread_.guard();
    return get(std::as_const(resources), std::as_const(queue_));
  }
  /// Replaces the tuning from the next call on. The shape of the arena stays as it is. All ranks call it between the
  /// same two calls.
  void retune(const TuningParameters& tuning);

  CommunicatorResources resources;
  const OwnerProcess owner_process;

 private:
  [[noreturn]] void refuse_in_child(std::string_view operation) const;
  /// Checks, plans and performs a blocking call.
  void plan_and_run(Call&& call, const Options& options);
  /// Plans and performs a blocking call on device memory.
  void run_on_device(const Call& call, const Options& options, std::exception_ptr refused, OperationQueue::Lock& lock);

  Impl* next_left_ = nullptr;  // next in the list of leave_to_parent()
  DeviceCalls device_calls_{resources};
  DeviceMemories device_memories_{resources};
  OperationPool<Work::State> pool_;
  RepeatedCall repeated_call_;
  OperationQueue queue_{resources, device_calls_};
  ProgressThread progress_thread_{resources, queue_};  // last: its thread uses the other parts
};

}  // namespace collectives
