// Communicator::Impl: the private part of the public class Communicator. It performs the collective calls of one rank.
//
// Each call goes through three phases. The first phase checks the arguments. The second phase chooses a plan, which
// names the algorithm. The third phase makes an Operation, the object that represents the call until all its data has
// been exchanged. A queue holds the unfinished operations in the order of the calls. The operations begin to exchange
// data in this order, too.
//
// The function issue() performs an asynchronous call, and returns without waiting. If the queue is empty, issue()
// starts the operation, which may end at once. In all other cases, issue() puts the operation into the queue.
//
// The function run() performs a blocking call, and returns when the operation has ended. On host (CPU) memory, run()
// makes up to 200 attempts (kSpinAttempts) to complete the operation without the queue. Most short operations complete
// within these attempts. If the communicator has ranks on several hosts, run() makes 10 attempts, because each attempt
// costs a system call. If all attempts fail, or if the queue already holds earlier operations, the operation enters the
// queue. Operations on GPU memory always enter the queue. One kind of call returns earlier: if the program passes a GPU
// stream to a call that NCCL performs, run() returns as soon as all work is in GPU streams.
//
// If a blocking call has the same arguments as the last blocking call, run() may skip the first two phases
// (repeated_call.hpp). A blocking call with a compressor is performed as an asynchronous call followed by a wait.
//
// A rank refuses a call if the arguments are invalid or the library cannot perform the call. The refusing rank throws
// an error. It publishes the reason in shared memory and, if necessary, to other hosts. Other ranks that perform the
// same call read the reason, and throw an error instead of waiting for the refusing rank (operation_queue.hpp).
//
// The head of each file explains one part:
//
//   communicator_resources.hpp  CommunicatorResources: settings, topology, connections and executors, made once
//   operation_queue.hpp         OperationQueue: the order of operations, their progress, their failure, and waits
//   call_preparation.hpp        CallPreparation: the checks of a call, its plan, and its refusal
//   persistent_state.hpp        PersistentCall::State: a call that is planned once and started many times
//   repeated_call.hpp           RepeatedCall: recognizes a blocking call with the arguments of the last blocking call
//   one_call.hpp                OneCall: refuses a second call during a call of the same kind
//   device_calls.hpp            DeviceCalls: operations on GPU memory
//   device_memories.hpp         DeviceMemories: GPU memory that the program has allocated or registered
//   progress_thread.hpp         ProgressThread: the optional thread that progresses operations, and the lock
//   group_pool.hpp              GroupPool: memory of groups, which later groups use again
//   handle_states.hpp           HandleStates: the operations to which handles of the program refer
//   point_to_point_calls.hpp    PointToPointCalls: point-to-point calls, and their objects
//
// Fork. A child process made by fork() inherits the connections and the shared memory of the communicator. The child
// does not inherit the threads. In the child, collectives, waits, progress(), split() and functions for GPU memory
// throw Error{invalid_argument}. Functions that only return properties, plans or counters still work. In the child, the
// destructor of the Communicator closes no connection, frees no memory and sends no message. Each process has a fork
// number: a child inherits the number of its parent and adds 1. A communicator stores the number of the process that
// constructs it. Price: each call compares the stored number with the number of the calling process.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/fork.hpp"
#include "collectives/communicator.hpp"
#include "communicator/call_preparation.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/device_memories.hpp"
#include "communicator/group_pool.hpp"
#include "communicator/handle_states.hpp"
#include "communicator/one_call.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_queue.hpp"
#include "communicator/persistent_state.hpp"
#include "communicator/point_to_point_calls.hpp"
#include "communicator/progress_thread.hpp"
#include "core/call.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN Communicator::Impl final {
  using Visibility = CommunicatorResources::Visibility;
  /// Takes the arguments of the constructor of CommunicatorResources. All ranks of `bootstrap` construct their Impl
  /// together.
  Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
       Visibility visibility = Visibility::visible, std::unique_ptr<NcclComm> nccl_comm = nullptr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Returns whether this process is a forked child of the one that made the communicator.
  bool inherited() const noexcept { return !owner_process.is_current(); }
  /// Throws Error{invalid_argument} if this process is a forked child. `operation`: name of the call, for the error.
  void check_process(std::string_view operation) const {
    if (inherited()) refuse_in_child(operation);
  }
  void check_process(Collective collective) const {
    if (inherited()) refuse_in_child(to_string(collective));
  }
  /// Keeps `inherited`, a communicator that a forked child has inherited, until the child ends. Closes, frees and sends
  /// nothing.
  static void leave_to_parent(std::unique_ptr<Impl> inherited) noexcept;

  /// Performs a blocking call. Throws Error if the call is refused or fails.
  void run(Call&& call, const Options& options);
  /// Performs a blocking call, and reports a long wait as ReportedWait does. `what` completes the sentence "rank 3 did
  /// not ...". Throws the errors of run().
  void run_with_reports(const Call& call, std::string_view what);
  /// Starts an asynchronous call, and returns its operation. Throws Error if the call is refused. `refused`: the error
  /// that DeviceCalls::place() has returned for a tensor of a Group; null if there is none.
  std::shared_ptr<Work::State> issue(Call call, const Options& options, std::exception_ptr refused = nullptr);
  /// Returns the part that checks, places, plans and refuses calls.
  CallPreparation& preparation() noexcept { return preparation_; }
  /// Blocks until the operation `state` has ended or the deadline `until` has passed. Returns whether it has ended.
  bool wait_until(Operation& state, Deadline until);
  /// Progresses operations without waiting. Returns whether `state` has ended.
  bool test(Operation& state);
  /// Progresses the unfinished operations without waiting.
  void progress();
  /// Throws if a rank has ended or left, or if the communicator has failed. `operation` is not a call, such as
  /// "split"; the error names it.
  void check_peers(std::string_view operation);
  /// Returns the NCCL communicator of ranks with the same color. Returns null for a negative color, or if NCCL does not
  /// connect these ranks. All ranks call it.
  std::unique_ptr<NcclComm> split_nccl_comm(int color, int key);
  /// Allocates memory on this rank's GPU, or registers memory. Waits until no operation is queued or in flight.
  DeviceMemory allocate_on_device(std::size_t bytes);
  DeviceMemory register_memory(std::byte* data, std::size_t bytes);
  /// Removes GPU memory from the list of this communicator, after all operations of the communicator have ended.
  void forget(DeviceAllocation& memory) noexcept;
  /// Returns the result of `get(resources, queue)`, which only reads counters. A forked child takes no lock, because it
  /// has no other thread.
  template <class Get>
  auto read(Get&& get) {
    const auto lock = inherited() ? OperationQueue::Lock() : progress_thread_.guard();
    return get(std::as_const(resources), std::as_const(queue_));
  }
  /// Replaces the tuning for all later calls. The arena, the shared memory of the host's ranks, keeps its shape. All
  /// ranks call retune() between the same two calls.
  void retune(const TuningParameters& tuning);

  CommunicatorResources resources;
  const std::shared_ptr<GroupPool> groups = std::make_shared<GroupPool>();
  const OwnerProcess owner_process;
  PointToPointCalls messages{*this, resources};

 private:
  friend class PointToPointCalls;       // wakes the progress thread
  friend class Communicator;            // create_group() takes the lock
  friend class Group;                   // performs the calls of a group
  friend struct PersistentCall::State;  // performs persistent calls
  [[noreturn]] void refuse_in_child(std::string_view operation) const;
  /// Performs a blocking call whose arguments have been checked, and sets `call.memory`. `repeats`: whether the call
  /// repeats the last blocking call in everything but the addresses of its buffers. The plan of that call is then used.
  void run_checked(Call& call, const Options& options, bool repeats);
  /// Performs a blocking call on device memory.
  void run_on_device(const Call& call, const Options& options, const std::shared_ptr<const PlannedCall>& planned,
                     std::exception_ptr refused, OperationQueue::Lock& lock);

  Impl* next_left_ = nullptr;  // next in the list of leave_to_parent()
  OneCall one_call_{"call"};
  DeviceCalls device_calls_{resources};
  DeviceMemories device_memories_{resources};
  HandleStates<Work::State, PersistentCall::State> handles_;
  OperationQueue queue_{resources, device_calls_};
  ProgressThread progress_thread_{resources, queue_, messages.engine()};  // follows all parts that its thread uses
  CallPreparation preparation_{resources, device_calls_, queue_, progress_thread_};
};

}  // namespace collectives
