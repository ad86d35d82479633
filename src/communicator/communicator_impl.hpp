// Communicator::Impl: the path of a call from the public function to the executor.
//
// run() and issue() check a call and get its plan. run() performs a blocking call, and first tries it without the
// queue. If the call is not complete after some attempts, run() puts it into the queue. issue() queues every call.
// Operations begin in the order of issue. begin() starts the executor, which sends the first data. begin() then
// publishes the arrival record: the number and the signature of the call. Peers that wait read this record. An
// operation on device memory publishes the record before it starts.
//
// Every wait, test() and the progress thread call progress_queue(), which never waits. About once per millisecond, a
// wait also calls detect_failures().
//
// A blocking call with the arguments of the last one skips checks and planning. The call must have only buffers, a
// built-in op, a root, a backend and a timeout, and the communicator must have no GPU. The repeated call allocates no
// memory. Exception: a transport allocates a frame, its memory for one message, when it first uses the frame.
//
// In flight. An operation whose work is all in GPU streams leaves the queue, so that later ones can begin. It is kept
// in `in_flight_`. With NCCL, a progress thread watches it by default. The wire must then accept control messages from
// any thread (Wire::control_is_thread_safe). Signatures of calls are compared while a rank waits and when results have
// arrived. Price: an error in a stream, such as a mismatch, is thrown by a later call. At most kRecords / 2 = 32 calls
// begin after the oldest operation in flight.
//
// After a failure, all operations fail with the first error of the communicator. fail_all() first waits until no rank
// of this host works in buffers of its peers, at most half a second for each stopped rank. Unless a rank has stopped,
// the buffers are therefore free when the error is thrown.
//
// A child made by fork() has its parent's arena and connections, but none of its threads. Calls on an inherited
// communicator are refused, and its destructor does nothing. Price: one load per call. A child keeps what it has
// inherited until it ends.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fork.hpp"
#include "base/wait.hpp"
#include "bootstrap/subset.hpp"
#include "collectives/communicator.hpp"
#include "communicator/communicator_init.hpp"
#include "communicator/observer.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_queue.hpp"
#include "core/call.hpp"
#include "core/tuning_parameters.hpp"
#include "device/nccl_path.hpp"
#include "device/path_executor.hpp"
#include "execution/executor.hpp"
#include "execution/progress_engine.hpp"
#include "monitoring/failure_detector.hpp"
#include "planning/planner.hpp"
#include "shared_memory/peer_memory.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN Communicator::Impl final : private ProgressEngine::Member {
  /// Whether traces, the log and monitors show a communicator. The library hides communicators that it makes for
  /// itself.
  enum class Visibility : bool { hidden, visible };
  /// `nccl_comm`: the NCCL communicator of these ranks, if it has been split off already.
  /// `measure`: measures tuning values that neither `options` nor the environment give. Null: built-in values.
  Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
       Visibility visibility = Visibility::visible, std::unique_ptr<NcclComm> nccl_comm = nullptr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Returns whether this process is a forked child of the one that made the communicator. A child must not touch its
  /// arena, connections and threads.
  bool inherited() const noexcept { return !owner_process_.is_current(); }
  /// Throws Error{invalid_argument} in such a child. `operation`: name of the refused operation.
  void check_process(std::string_view operation) const {
    if (inherited()) refuse_in_child(operation);
  }
  void check_process(Collective collective) const {
    if (inherited()) refuse_in_child(to_string(collective));
  }
  [[noreturn]] void refuse_in_child(std::string_view operation) const;
  /// Releases an inherited communicator. Closes, ends and sends nothing.
  static void leave_to_parent(std::unique_ptr<Impl> inherited) noexcept;
  pid_t process() const noexcept { return owner_process_.process(); }

  /// Checks, plans and performs a call. Throws its error.
  void run(Call&& call, const Options& options);
  /// Checks and plans a call and puts it into the queue.
  /// `refused`: the error that place() returned for the tensors of this call.
  std::shared_ptr<Work::State> issue(Call call, const Options& options, std::exception_ptr refused = nullptr);
  /// Determines whether the buffers are in host or device memory, and sets `call.memory`. Throws if the buffers are
  /// invalid. Returns the GPU's error if it could not be asked. The operation must then fail with that error on all
  /// ranks.
  std::exception_ptr place(Call& call, const Options& options) const;
  /// Returns the plan of a call whose arguments have been checked. It is valid until the next plan(). Throws Error as
  /// Planner::plan() and TopK do.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options);
  /// Returns the plan of a call that is not made: it has no buffers to check.
  std::shared_ptr<const PlannedCall> plan_of(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                             const Options& options);
  /// Waits until `state` has finished or `until` has passed. Returns whether it has finished.
  bool wait(Work::State& state, Deadline until);
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
  void forget(DeviceMemory::State& memory) noexcept;
  std::uint64_t bytes_sent();
  std::uint64_t bytes_sent_to_other_hosts();
  CodingReport coding();
  std::vector<OperationRecord> recent_operations();
  Counters counters();
  /// Replaces the tuning from the next call on. The shape of the arena stays as it is. All ranks call it between the
  /// same two calls.
  void retune(const TuningParameters& tuning);

  // Set at construction. Only retune() changes the tuning later.
  Settings settings;
  SubsetBootstrap::ParentInfo
      parent_info;  ///< host, domain and wires of the bootstrap; communicators made by split() use them too
  CommunicatorContext context;
  std::unique_ptr<RankView> view;
  std::string transport_name;
  std::unique_ptr<SharedMemoryTransport> local;  ///< between ranks of this host; the wire is in `context`
  std::unique_ptr<FailureDetector> failure_detector;
  std::unique_ptr<PeerMemory> peer_memory;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Planner> planner;
  std::array<std::unique_ptr<PathExecutor>, kDevicePaths> paths;  ///< by DevicePath; all null without a GPU
  std::unique_ptr<Observer> observer;

  Rank rank() const noexcept { return context.rank; }
  int size() const noexcept { return view->world.size(); }

 private:
  using State = Work::State;

  /// Returns the lock under which operations progress. It is empty without a progress thread. A communicator on the
  /// list of another thread moves to the list of this one.
  std::unique_lock<std::mutex> guard();
  /// Returns guard() for a function that only reads. A forked child gets no lock, because no thread of it writes.
  std::unique_lock<std::mutex> guard_reading() { return inherited() ? std::unique_lock<std::mutex>() : guard(); }
  /// Puts the communicator on the progress list of this thread.
  void attach_to_this_thread();
  /// Calls visit() for the executor of host memory and for those of device paths.
  template <class Visit>
  void for_each_executor(Visit&& visit) const {
    visit(*executor);
    for (const auto& path : paths)
      if (path != nullptr && path->executor() != nullptr) visit(*path->executor());
  }
  /// Returns an unused state of the pool, filled in for a call.
  std::shared_ptr<State> new_state(const Call& call, const Options& options,
                                   const std::shared_ptr<const PlannedCall>& planned);
  /// Describes a call in `state`.
  void fill(State& state, const Call& call, const Options& options, const std::shared_ptr<const PlannedCall>& planned);
  bool compress(State& state);
  /// Turns `state` into an operation on device memory.
  void make_device_call(State& state, const Call& call, const Options& options, bool blocking,
                        std::exception_ptr refused);
  /// Releases the state's resources of the device.
  void release_device_call(State& state) noexcept;
  /// Performs a blocking call on device memory.
  void run_on_device(const Call& call, const Options& options, std::exception_ptr refused,
                     std::unique_lock<std::mutex>& lock);
  PathExecutor& path_of(const State& state) const {
    return *paths[static_cast<std::size_t>(state.call->plan.device_path)];
  }
  /// Returns whether the call equals the last blocking call in all arguments.
  inline bool repeats_last_call(const Call& call, const Options& options) const noexcept;
  /// Checks, plans and performs a blocking call.
  void plan_and_run(Call&& call, const Options& options);
  /// Returns how often a blocking call tries without the queue.
  int spin_attempts() const noexcept;
  /// Performs `blocking_`. `spin`: first tries without the queue.
  inline void finish_blocking(std::unique_lock<std::mutex>& lock, bool spin);
  void wait_in_queue(std::unique_lock<std::mutex>& lock);
  /// Gives the operation its number and tag, and reads control messages. Throws the communicator's failure.
  void announce(State& state);
  /// Publishes the arrival record. `started`: Observer::time() when the operation began.
  void record_begin(State& state, std::uint64_t started);
  /// Starts an operation on host memory.
  void begin(State& state);
  /// Progresses the executor and starts further phases. Returns true when the operation has completed.
  bool perform(State& head);
  /// Progresses an operation on device memory. Returns true when it has completed.
  bool perform_on_device(State& head);
  NcclPath* nccl() const noexcept {
    return static_cast<NcclPath*>(paths[static_cast<std::size_t>(DevicePath::nccl)].get());
  }
  /// Finishes operations in flight that have completed.
  void retire_in_flight() noexcept;
  /// Waits until no operation is queued or in flight. `returned_only`: only for those in flight whose callers have
  /// returned.
  void wait_for_in_flight(std::unique_lock<std::mutex>& lock, bool returned_only);
  /// Returns whether the oldest operation in flight is kRecords / 2 calls behind. The next operation then has to wait,
  /// because the ring of arrival records is finite.
  bool too_far_ahead() const noexcept;
  bool has_to_wait(const State& head) const noexcept;
  /// Returns whether a call that waits for `state` may return.
  static bool returns(const State& state) noexcept;
  void complete(std::uint64_t sequence) noexcept;
  /// Waits until this rank may allocate, free and register device memory. Throws Error.
  void prepare_for_memory(std::unique_lock<std::mutex>& lock);
  /// Adds `memory` to this communicator, and registers it if NCCL connects the ranks.
  void adopt(DeviceMemory::State& memory);
  bool peers_can_access(std::byte* data);
  /// Detaches all device memory from the communicator. The memory itself stays valid.
  void detach_memories() noexcept;
  /// Leaves the NCCL communicators in order.
  void leave() noexcept;
  void leave(NcclComm& nccl_comm) const noexcept;
  /// Returns the deadline for leaving. Until then, peers may still need what this rank has sent.
  Deadline leave_deadline() const noexcept;
  /// Progresses the head of the queue. Returns true when the queue is empty. Stores errors in the operations and throws
  /// none.
  bool progress_queue() noexcept;
  /// Progresses one operation. Returns true when it has finished or failed.
  bool progress_operation(State& state) noexcept;
  bool progress_on_device(State& state) noexcept;
  template <class Perform>
  bool progress_with(State& head, Perform&& perform) noexcept;
  /// Fails all operations after `head` has thrown.
  void fail_with(State& head, const std::exception_ptr& thrown) noexcept;
  /// Returns whether the head of the queue waits for this rank's GPU.
  bool waits_for_gpu() const noexcept;
  bool waits_for_wire() const noexcept;
  /// Returns a counter that changes whenever an operation progresses.
  std::uint64_t moves() const noexcept;
  /// Moves on what is under way, without waiting.
  void progress_locked();
  bool progress_as_member(bool check_failures) noexcept override;
  /// Progresses the other communicators on this thread's list. Returns whether any of them progressed.
  bool progress_others(bool check_failures) noexcept;
  void detect_failures() noexcept;
  void detect_failures_of(std::shared_ptr<State> shared) noexcept;
  bool completes(State& state) noexcept;
  /// Fails `first` and all operations that are queued or in flight.
  void fail_all(State& first, std::exception_ptr error) noexcept;
  /// Waits until `state` returns or `until` has passed, and progresses operations meanwhile.
  void wait_until(State& state, Deadline until, std::unique_lock<std::mutex>& lock);
  void progress_loop();

  const OwnerProcess owner_process_;
  Impl* next_left_ = nullptr;  // next in the list of leave_to_parent()
  std::uint64_t sequence_ = 0;
  std::vector<DeviceMemory::State*> memories_;
  OperationQueue<State> queue_;
  OperationQueue<State> in_flight_;  // operations that are all in streams, oldest first
  std::uint64_t finished_ = 0;       // number of the newest operation that has completed
  std::vector<std::shared_ptr<State>> pool_;
  std::shared_ptr<State> blocking_ = std::make_shared<State>();  // operation of a blocking call
  Call last_call_;                                               // that call, if it can be repeated
  std::string last_backend_;                                     // backend of that call
  bool repeatable_ = false;
  std::uint64_t operands_ = 0;  // last value of HostOperands::known_as that was handed out
  std::chrono::steady_clock::time_point looked_{};
  std::uint64_t moved_at_test_ = 0;  // moves() after the last test()
  std::exception_ptr failure_;

  std::shared_ptr<ProgressEngine> progress_engine_;  // list that holds this communicator, or null
  bool threaded_ = false;
  std::mutex mutex_;
  std::condition_variable work_to_do_;
  bool stop_ = false;
  std::thread progress_thread_;
};

template <class Perform>
bool Communicator::Impl::progress_with(State& head, Perform&& perform) noexcept {
  try {
    if (!perform()) return false;
    complete(head.sequence);
    observer->finish(head);
    head.phase.store(State::Phase::done, std::memory_order_release);
  } catch (...) {
    fail_with(head, std::current_exception());
  }
  return true;
}

}  // namespace collectives
