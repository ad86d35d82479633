// OperationQueue: holds the unfinished operations of a communicator. An operation is one call, from issue to end. The
// queue progresses the operations, waits for them, and ends them with an error after a failure.
//
// Communicator::Impl issues operations and waits for them. Three kinds of threads progress operations: a thread that
// waits for one of them, the progress thread if there is one, and otherwise a thread that waits for another
// communicator (progress_engine.hpp).
//
// If there is a progress thread, callers must hold the communicator's lock, ProgressThread::guard(). A function that
// waits gets the lock by reference, and releases it briefly in each turn of its loop.
//
// Order. Operations begin in the order of issue. Each operation publishes an arrival record: the number of the call and
// its signature. The signature holds the arguments on which all ranks must agree. Peers read the record if they wait
// long. For an operation on host memory, the executor sends the first data before the record is published. An operation
// on GPU memory publishes its record before it starts.
//
// Refusals. A rank refuses a call if its arguments are invalid or the library cannot perform the call. The refusal is
// an operation, too, so that all ranks number their calls alike. It moves no data. It gets its number in the order of
// issue, publishes a record with the reason, and is then complete. A rank that performs the refused call reads this
// record. If all ranks refuse the call, the communicator stays usable.
//
// Progress. The function progress() advances operations in their order, as far as possible without waiting. The
// function step() advances one operation. The function wait_until() blocks until an operation has ended or a deadline
// has passed. For a blocking call with a GPU stream, wait_until() blocks only until all work is in streams. About once
// per millisecond, a waiting thread also calls detect_failures().
//
// In flight. An operation is in flight when all its work is in GPU streams. It then moves from the fifo `queue_` to the
// fifo `in_flight_`, and stays there until it ends. The next operation can thus begin. With NCCL, the communicator has
// a progress thread by default, which watches operations in flight for failures. The thread reports failures to other
// hosts by control messages over the wire, the transport between hosts. If only the program's thread may send control
// messages (Wire::control_is_thread_safe), the default is no progress thread. Signatures of calls are compared while a
// rank waits, and when results have arrived. Price: an operation may fail in flight after its blocking call has
// returned. A later call then throws the error. At most kRecords / 2 = 32 calls begin after the oldest operation in
// flight.
//
// Failure. After a failure, all unfinished operations fail with the first error that any rank has reported. Ranks of a
// host may access one another's buffers. The function fail_all() therefore first waits until these accesses have ended.
// If a process is stopped by a signal, fail_all() waits at most half a second for it. After fail_all(), the program may
// free its buffers, unless a process is stopped.
//
// If `queue_` is empty, a short blocking call usually completes in run_blocking(), and never enters `queue_`. An
// asynchronous operation enters `queue_` if the first call of step() does not complete it. For speed, run_blocking()
// and step() are inline.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/deadline.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_fifo.hpp"
#include "communicator/operation_steps.hpp"
#include "execution/progress_engine.hpp"

namespace collectives {

/// Maximum number of attempts that a blocking call makes before it enters the fifo and waits. 200 attempts take some
/// microseconds, in which a short collective completes. With a wire between hosts, the maximum is 10, because each
/// attempt makes a system call.
inline constexpr int kSpinAttempts = 200;
inline constexpr int kSpinAttemptsOverWire = 10;
/// Time for which a call without a core of its own tries to end before it waits, if it waits for a root on another
/// core. Reason: other ranks may need this core, and a root that runs sends within that time. Four ranks on two cores
/// complete a broadcast of 8 bytes in 1.8 us with 3 us, and in 5.0 us with 0.
inline constexpr std::chrono::microseconds kSpinForRoot{3};

/// Calls `step`, which progresses an operation, for kSpinForRoot. Returns true when `step` has returned true.
template <class Step>
[[gnu::noinline]] bool spin_for_root(Step& step) noexcept {
  constexpr int kAttemptsPerLook = 8;  // at the clock; some attempts take less time than a look
  const auto until = std::chrono::steady_clock::now() + kSpinForRoot;
  do {
    for (int left = kAttemptsPerLook; left > 0; --left)
      if (step()) return true;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

/// Calls `step`, which progresses an operation, for some microseconds. Calls it once if other ranks may need this core.
/// Returns true when `step` has returned true.
template <class Step>
bool attempt_to_end(const CommunicatorResources& resources, Step&& step) noexcept {
  if (step()) return true;
  if (resources.context.oversubscribed) return resources.executor->waits_for_other_core() && spin_for_root(step);
  const int attempts = resources.context.wire != nullptr ? kSpinAttemptsOverWire : kSpinAttempts;
  for (int left = attempts - 1; left > 0; --left)
    if (step()) return true;
  return false;
}

class OperationQueue final : public ProgressEngine::Member {
 public:
  using Lock = std::unique_lock<std::mutex>;

  OperationQueue(const CommunicatorResources& resources, const DeviceCalls& device_calls)
      : resources_(resources), device_calls_(device_calls), steps_(resources, device_calls) {}

  // ---- issuing ----

  /// Advances all operations as far as possible, and adds this one unless it has ended.
  void issue(std::shared_ptr<Operation> operation);
  /// Adds an operation. Blocks until the operation has ended, or its work is in the caller's GPU stream.
  void run(const std::shared_ptr<Operation>& operation, Lock& lock);
  /// Returns the operation object of blocking calls on host memory.
  Operation& blocking() const noexcept { return *blocking_; }
  /// Performs the operation blocking() and throws its error. With `spin`, makes up to kSpinAttempts attempts before the
  /// operation enters the fifo.
  inline void run_blocking(Lock& lock, bool spin);

  // ---- progress ----

  /// Progresses operations without waiting. Stores errors in the operations and throws none.
  void progress() noexcept;
  /// Progresses this communicator and the others on this thread's list (execution/progress_engine.hpp). Detects
  /// failures at most once per millisecond.
  void progress_all() noexcept;
  /// Calls progress_all(). Returns whether any operation has progressed since the last call.
  bool progress_in_test() noexcept;
  bool progress_as_member(bool check_failures) noexcept override;
  /// Blocks until `operation.returns()` is true or `until` has passed. Progresses operations meanwhile.
  void wait_until(Operation& operation, Deadline until, Lock& lock);
  /// Blocks until no operation is queued or in flight. With `returned_only`, waits only for operations whose blocking
  /// call has returned.
  void wait_until_idle(Lock& lock, bool returned_only);
  /// Detects failures in the slow path of every wait: lost peers, mismatches, a stall, the deadline of the oldest
  /// operation.
  void detect_failures() noexcept;

  // ---- state ----

  /// Returns whether no operation is queued or in flight.
  bool is_idle() const noexcept { return queue_.empty() && in_flight_.empty(); }
  bool has_in_flight() const noexcept { return !in_flight_.empty(); }
  /// Returns whether kRecords / 2 calls have begun since the oldest operation in flight. The next operation then has to
  /// wait, because a rank stores only its last kRecords arrival records.
  bool is_too_far_ahead() const noexcept;
  /// Returns the number that the next call gets.
  std::uint64_t next_sequence() const noexcept;
  /// Returns the last begun operations, then the queued ones.
  std::vector<OperationRecord> recent_operations() const;

  // ---- failure ----

  bool has_failed() const noexcept { return failure_ != nullptr; }
  /// Throws the failure of the communicator, if there is one.
  void throw_failure() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  /// Stores `failure` as the failure of the communicator. Requires that the queue is idle.
  void set_failure(std::exception_ptr failure) noexcept { failure_ = std::move(failure); }
  /// Waits for results of calls that have returned, and fails unfinished operations, before the communicator ends.
  void end() noexcept;

 private:
  /// Progresses one operation. Returns true when it has finished or failed.
  inline bool step(Operation& operation) noexcept;
  /// Publishes the refusal of a call as soon as it is the oldest operation.
  void publish_refusal(Operation& refusal) noexcept;
  /// Calls `stepped`, which returns whether `operation` has completed. If it has, finishes the operation and returns
  /// true. If `stepped` throws, fails all operations and returns true.
  template <class Stepped>
  bool finish_if(Operation& operation, Stepped&& stepped) noexcept;
  /// Finishes operations in flight that have completed.
  void retire() noexcept;
  /// Returns whether the queued `head` has to stay in the fifo for now.
  bool has_to_wait(const Operation& head) const noexcept;
  /// Returns the wire if the oldest queued operation waits for it, else null.
  Wire* awaited_wire() const noexcept;
  void detect_failures_of(std::shared_ptr<Operation> shared) noexcept;
  /// Fails all operations after `head` has thrown.
  void fail_with(Operation& head, const std::exception_ptr& thrown) noexcept;
  /// Fails `first` and all operations queued or in flight.
  void fail_all(Operation& first, std::exception_ptr error) noexcept;

  const CommunicatorResources& resources_;
  const DeviceCalls& device_calls_;
  OperationSteps steps_;
  OperationFifo queue_;
  OperationFifo in_flight_;  // operations whose work is all in GPU streams, oldest first
  std::shared_ptr<Operation> blocking_ = std::make_shared<Operation>();
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point looked_{};  // time at which progress_all() last detected failures
  std::uint64_t moved_at_test_ = 0;                 // moves() after the last progress_in_test()
};

// ---- the path of a short call ----

template <class Stepped>
bool OperationQueue::finish_if(Operation& operation, Stepped&& stepped) noexcept {
  try {
    if (!stepped()) return false;
    steps_.sequence().complete(operation.sequence, in_flight_.empty() ? nullptr : &in_flight_.front());
    resources_.observer->finish(operation);
    operation.phase.store(Operation::Phase::done, std::memory_order_release);
  } catch (...) {
    fail_with(operation, std::current_exception());
  }
  return true;
}

bool OperationQueue::step(Operation& operation) noexcept {
  return finish_if(operation, [&] { return steps_.step(operation); });
}

void OperationQueue::run_blocking(Lock& lock, bool spin) {
  Operation& operation = *blocking_;
  resources_.observer->issue(operation);
  // A short operation does not enter the fifo if the fifo is empty.
  bool done = false;
  if (queue_.empty() && spin) done = attempt_to_end(resources_, [&] { return step(operation); });
  if (!done) run(blocking_, lock);
  if (operation.error != nullptr) std::rethrow_exception(std::exchange(operation.error, nullptr));
}

}  // namespace collectives
