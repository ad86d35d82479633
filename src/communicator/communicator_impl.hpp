// The inside of a communicator: what a call passes through between the public function and the executor.
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
  /// Whether traces, log and watchers should see a communicator, or it is the library's own business.
  enum class Visibility : bool { hidden, visible };
  /// `nccl_comm`: that of these ranks, if it has been split off already.
  /// `measure`: measures tuning values that neither `options` nor the environment give; null: built-in values.
  Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
       Visibility visibility = Visibility::visible, std::unique_ptr<NcclComm> nccl_comm = nullptr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Whether this process is a child of the one that made the communicator, whose arena, connections and threads it is
  /// not to touch.
  bool inherited() const noexcept { return !owner_process_.is_current(); }
  /// Throws Error{invalid_argument} in such a child. `operation`: what it wanted to do.
  void check_process(std::string_view operation) const {
    if (inherited()) refuse_in_child(operation);
  }
  void check_process(Collective collective) const {
    if (inherited()) refuse_in_child(to_string(collective));
  }
  [[noreturn]] void refuse_in_child(std::string_view operation) const;
  /// What becomes of an inherited communicator: nothing of it is closed, ended or said.
  static void leave_to_parent(std::unique_ptr<Impl> inherited) noexcept;
  pid_t process() const noexcept { return owner_process_.process(); }

  /// Checks and plans a call and performs it. Throws what it fails with.
  void run(Call&& call, const Options& options);
  /// Checks and plans a call and puts it into the queue.
  /// `refused`: of the one that place() has returned for what has become this call.
  std::shared_ptr<Work::State> issue(Call call, const Options& options, std::exception_ptr refused = nullptr);
  /// Finds out whose memory the buffers are, and says so in `call`. Throws what is wrong with them; returns what a GPU
  /// that could not tell has refused, with which the operation is to fail on all ranks.
  std::exception_ptr place(Call& call, const Options& options) const;
  /// Returns the plan of a call whose arguments have been checked; valid until the next call of plan(). Throws Error:
  /// see Planner::plan() and TopK.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options);
  /// Returns the plan of a call that is not made, so that there are no buffers to check.
  std::shared_ptr<const PlannedCall> plan_of(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                             const Options& options);
  /// Waits for `state` until it is finished or `until` has passed; true when finished.
  bool wait(Work::State& state, Deadline until);
  bool test(Work::State& state);
  void progress();
  /// For a communicator of those who say the same color; null where NCCL does not connect these ranks, or for a
  /// negative one. All ranks call it.
  std::unique_ptr<NcclComm> split_nccl_comm(int color, int key);
  /// Memory of this rank's GPU as programs have it: new, or their own. Both wait for what is under way.
  DeviceMemory allocate_on_device(std::size_t bytes);
  DeviceMemory register_memory(std::byte* data, std::size_t bytes);
  /// This communicator has nothing more to do with it.
  void forget(DeviceMemory::State& memory) noexcept;
  std::uint64_t bytes_sent();
  std::uint64_t bytes_sent_to_other_hosts();
  CodingReport coding();
  std::vector<OperationRecord> recent_operations();
  Counters counters();
  /// Other numbers from the next call on, of which the arena's shape stays as it is. On all ranks between the same
  /// calls.
  void retune(const Tuning& tuning);

  // What is fixed at construction.
  Settings settings;
  SubsetBootstrap::ParentInfo parent_info;  ///< which holds for its parts, too
  CommunicatorContext context;
  std::unique_ptr<RankView> view;
  std::string transport_name;
  std::unique_ptr<SharedMemoryTransport> local;  ///< between ranks of this host; the wire is in `context`
  std::unique_ptr<FailureDetector> failure_detector;
  std::unique_ptr<PeerMemory> peer_memory;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Planner> planner;
  std::array<std::unique_ptr<PathExecutor>, kDevicePaths> paths;  ///< by DevicePath; none without a GPU
  std::unique_ptr<Observer> observer;

  Rank rank() const noexcept { return context.rank; }
  int size() const noexcept { return view->world.size(); }

 private:
  using State = Work::State;

  /// Held by whoever moves operations on; a real lock only when a progress thread might be that someone. Where no
  /// progress thread is, operations under way are from now on this thread's to move on.
  std::unique_lock<std::mutex> guard();
  /// Held by whoever only reads, which a child may do, too: it has no thread that writes.
  std::unique_lock<std::mutex> guard_reading() { return inherited() ? std::unique_lock<std::mutex>() : guard(); }
  void attach_to_this_thread();
  /// The host's, and those of ways.
  template <class Visit>
  void for_each_executor(Visit&& visit) const {
    visit(*executor);
    for (const auto& path : paths)
      if (path != nullptr && path->executor() != nullptr) visit(*path->executor());
  }
  std::shared_ptr<State> new_state(const Call& call, const Options& options,
                                   const std::shared_ptr<const PlannedCall>& planned);
  void fill(State& state, const Call& call, const Options& options, const std::shared_ptr<const PlannedCall>& planned);
  bool compress(State& state);
  /// Makes it an operation on device memory.
  void make_device_call(State& state, const Call& call, const Options& options, bool blocking,
                        std::exception_ptr refused);
  void release_device_call(State& state) noexcept;
  void run_on_device(const Call& call, const Options& options, std::exception_ptr refused,
                     std::unique_lock<std::mutex>& lock);
  PathExecutor& path_of(const State& state) const {
    return *paths[static_cast<std::size_t>(state.call->plan.device_path)];
  }
  /// Whether it is the last blocking call once more, in everything.
  inline bool repeats_last_call(const Call& call, const Options& options) const noexcept;
  /// Any other blocking call.
  void plan_and_run(Call&& call, const Options& options);
  int spin_attempts() const noexcept;
  /// Performs blocking_, at once if that may be.
  inline void finish_blocking(std::unique_lock<std::mutex>& lock, bool spin);
  void wait_in_queue(std::unique_lock<std::mutex>& lock);
  void announce(State& state);
  /// `started`: Observer::time() when it began.
  void record_begin(State& state, std::uint64_t started);
  void begin(State& state);
  bool perform(State& head);
  bool perform_on_device(State& head);
  NcclPath* nccl() const noexcept {
    return static_cast<NcclPath*>(paths[static_cast<std::size_t>(DevicePath::nccl)].get());
  }
  /// Finishes what has happened of the operations in flight.
  void retire_in_flight() noexcept;
  /// Waits for all that is under way, or only for what is in flight and whose callers think that it is done.
  void wait_for_in_flight(std::unique_lock<std::mutex>& lock, bool returned_only);
  /// Whether the head of the queue would come so far behind those in flight that arrival records are needed anew.
  bool too_far_ahead() const noexcept;
  bool has_to_wait(const State& head) const noexcept;
  /// Whether a call that waits for `state` may return.
  static bool returns(const State& state) noexcept;
  void complete(std::uint64_t sequence) noexcept;
  /// This rank may take, give back and register memory. Throws Error.
  void prepare_for_memory(std::unique_lock<std::mutex>& lock);
  void adopt(DeviceMemory::State& memory);
  bool within_reach(std::byte* data);
  /// All that it has been told of lives on without it.
  void detach_memories() noexcept;
  /// Leaves NCCL in order.
  void leave() noexcept;
  void leave(NcclComm& nccl_comm) const noexcept;
  /// Of a rank that leaves while others may still need what it has sent.
  Deadline leave_deadline() const noexcept;
  /// Moves the head of the queue on; true when the queue is empty. Does not throw: failures go to the operations.
  bool progress_queue() noexcept;
  /// Moves one operation on; true when it has finished or failed.
  bool progress_operation(State& state) noexcept;
  bool progress_on_device(State& state) noexcept;
  template <class Perform>
  bool progress_with(State& head, Perform&& perform) noexcept;
  /// `head` has thrown.
  void fail_with(State& head, const std::exception_ptr& thrown) noexcept;
  /// Whether the head of the queue waits for this rank's GPU.
  bool waits_for_gpu() const noexcept;
  bool waits_for_wire() const noexcept;
  /// Changes whenever something has moved.
  std::uint64_t moves() const noexcept;
  /// Moves on what is under way, without waiting.
  void progress_locked();
  bool progress(bool check_failures) noexcept override;
  /// Moves on what else this thread has left unfinished; true when something moved.
  bool progress_others(bool check_failures) noexcept;
  void detect_failures() noexcept;
  void detect_failures_of(std::shared_ptr<State> shared) noexcept;
  bool completes(State& state) noexcept;
  /// Of `first` and of all that are queued.
  void fail_all(State& first, std::exception_ptr error) noexcept;
  void wait_until(State& state, Deadline until, std::unique_lock<std::mutex>& lock);
  void progress_loop();

  const OwnerProcess owner_process_;
  Impl* next_left_ = nullptr;  // in the list of leave_to_parent()
  std::uint64_t sequence_ = 0;
  std::vector<DeviceMemory::State*> memories_;
  OperationQueue<State> queue_;
  OperationQueue<State> in_flight_;  // behind it: operations that are in streams, oldest first
  std::uint64_t finished_ = 0;       // the last that has, of the others
  std::vector<std::shared_ptr<State>> pool_;
  std::shared_ptr<State> blocking_ = std::make_shared<State>();  // of the call that waits for its own end
  Call last_call_;                                               // what it was, if it may come again
  std::string last_backend_;                                     // and by what name
  bool repeatable_ = false;
  std::uint64_t operands_ = 0;  // that were to be remembered
  std::chrono::steady_clock::time_point looked_{};
  std::uint64_t moved_at_test_ = 0;  // moves() after the last test()
  std::exception_ptr failure_;

  std::shared_ptr<ProgressEngine> progress_engine_;  // the list this communicator is on, if it is on one
  bool threaded_ = false;
  std::mutex mutex_;
  std::condition_variable work_to_do_;
  bool stop_ = false;
  std::thread progress_thread_;
};

}  // namespace collectives
