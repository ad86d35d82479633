// Implementation of OperationQueue, which holds the unfinished operations of a communicator. An operation is one call,
// from issue to end.
//
// The function progress() advances operations, oldest first, as far as possible without waiting. The function
// wait_until() advances them in a loop until a given operation has ended. It also looks for failures about once per
// millisecond. After a failure, all unfinished operations end with the same error.
//
// All work of an operation on GPUs may be in GPU streams before the operation ends. The operation then moves to a
// second list, the operations in flight, so that the next operation can begin.
#include "communicator/operation_queue.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/wait.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

CallInfo info_of(const Operation& operation) { return {operation.sequence, operation.call->signature, operation.name}; }

/// Progresses all other communicators that this thread has used and whose operations are unfinished. Reason: a peer may
/// wait for one of these operations (execution/progress_engine.hpp). Returns whether any of these operations
/// progressed.
bool progress_others(const OperationQueue& queue, bool check_failures) noexcept {
  ProgressEngine* const engine = ProgressEngine::of_this_thread();
  return engine != nullptr && engine->progress(queue, check_failures);
}

/// Releases the lock and takes it again, so that another thread can take it in between.
void release_briefly(OperationQueue::Lock& lock) {
  if (!lock.owns_lock()) return;
  lock.unlock();
  lock.lock();
}

bool waits_for_gpu(const Operation& head) noexcept { return head.on_device && head.device->with_gpu; }

}  // namespace

// ---- issuing ----

void OperationQueue::issue(std::shared_ptr<Operation> operation) {
  if (is_idle() && !operation->on_device && !operation->refused) {
    if (!step(*operation)) queue_.push(std::move(operation));
    return;
  }
  queue_.push(std::move(operation));
  progress();
}

void OperationQueue::run(const std::shared_ptr<Operation>& operation, Lock& lock) {
  queue_.push(operation);
  progress();
  if (!operation->returns()) wait_until(*operation, Deadline::never(), lock);
}

// ---- progress ----

void OperationQueue::progress() noexcept {
  retire();
  while (!queue_.empty()) {
    Operation& head = queue_.front();
    if (head.is_queued() && has_to_wait(head)) return;
    if (head.refused) {
      publish_refusal(head);
      if (!queue_.empty()) queue_.pop();  // the queue is empty after a failure
      continue;
    }
    const bool over = step(head);
    if (!over && !(head.on_device && head.device->in_flight)) return;
    if (!over)
      in_flight_.push(queue_.take());
    else if (!queue_.empty())
      queue_.pop();  // the queue is empty after a failure
  }
}

void OperationQueue::publish_refusal(Operation& refusal) noexcept {
  const std::shared_ptr<Operation> kept = queue_.share();
  try {
    steps_.publish_refusal(refusal);
    steps_.sequence().complete(refusal.sequence, in_flight_.empty() ? nullptr : &in_flight_.front());
    resources_.observer->fail_too(refusal);
    resources_.failure_detector->send_refusal();
    refusal.phase.store(Operation::Phase::failed, std::memory_order_release);
  } catch (...) {
    fail_with(refusal, std::current_exception());
  }
}

void OperationQueue::retire() noexcept {
  while (!in_flight_.empty()) {
    const std::shared_ptr<Operation> oldest = in_flight_.share();
    const bool retired = finish_if(*oldest, [&] {
      if (!steps_.retire(*oldest)) return false;
      in_flight_.pop();
      return true;
    });
    if (!retired) return;
  }
}

/// Returns true if is_too_far_ahead(), or if `head` would allocate GPU memory while earlier operations are in GPU
/// streams. CUDA may block in the allocation until these operations end. They may wait for other ranks, and a thread
/// blocked in CUDA would not notice that such a rank has failed. The caller therefore waits in its own loop first.
bool OperationQueue::has_to_wait(const Operation& head) const noexcept {
  if (in_flight_.empty()) return false;
  return is_too_far_ahead() || (head.on_device && device_calls_.takes_memory(head));
}

bool OperationQueue::is_too_far_ahead() const noexcept {
  return !in_flight_.empty() && steps_.sequence().newest() - in_flight_.front().sequence >= kRecords / 2;
}

/// Returns at once if another thread has the lock, because that thread progresses the operations.
bool OperationQueue::progress_as_member(bool check_failures) noexcept {
  std::unique_lock lock(resources_.mutex, std::defer_lock);
  if (resources_.locked && !lock.try_lock()) return false;
  const std::uint64_t before = resources_.moves();
  progress();
  if (check_failures && !is_idle()) detect_failures();
  return resources_.moves() != before;
}

void OperationQueue::progress_all() noexcept {
  progress();
  if (is_idle()) return;
  const auto now = Clock::now();
  const bool check_failures = now - looked_ >= std::chrono::milliseconds(1);
  progress_others(*this, check_failures);
  if (!check_failures) return;
  looked_ = now;
  detect_failures();
}

bool OperationQueue::progress_in_test() noexcept {
  progress_all();
  const std::uint64_t moves = resources_.moves();
  return moves != std::exchange(moved_at_test_, moves);
}

// ---- waiting ----

void OperationQueue::wait_until(Operation& operation, Deadline until, Lock& lock) {
  const bool is_head = in_flight_.empty() && !queue_.empty() && &queue_.front() == &operation;
  const auto attempt = [&] { return step(operation); };
  if (is_head && !operation.on_device && !operation.refused && attempt_to_end(resources_, attempt)) {
    if (!queue_.empty()) queue_.pop();  // the queue is empty after a failure
    return;
  }
  const Observer::WaitTimer timer(*resources_.observer, operation);
  CollectiveBackoff backoff(resources_.context.oversubscribed);
  std::uint64_t moved = resources_.moves();
  for (;;) {
    if (lock.owns_lock()) {
      release_briefly(lock);
      if (operation.returns()) return;
    }
    const bool check_failures = backoff.wait(awaited_wire());
    if (check_failures) {
      detect_failures();
      if (until.passed()) return;
    }
    progress();
    if (operation.returns()) return;
    const bool others_progressed = progress_others(*this, check_failures);
    const std::uint64_t moves = resources_.moves();
    if (moves != std::exchange(moved, moves) || others_progressed) backoff.reset();
  }
}

void OperationQueue::wait_until_idle(Lock& lock, bool returned_only) {
  CollectiveBackoff backoff(resources_.context.oversubscribed);
  const auto awaited = [&] {
    bool any = !returned_only && !queue_.empty();
    in_flight_.for_each([&](const Operation& one) { any = any || !returned_only || one.returns(); });
    return any;
  };
  while (awaited()) {
    release_briefly(lock);
    const bool check_failures = backoff.wait();
    if (check_failures) detect_failures();
    progress();
    progress_others(*this, check_failures);
  }
}

Wire* OperationQueue::awaited_wire() const noexcept {
  const Executor* at_work = resources_.executor.get();
  if (!queue_.empty()) {
    const Operation& head = queue_.front();
    if (waits_for_gpu(head)) return nullptr;
    if (head.on_device && !head.device->in_host) at_work = resources_.path_of(head).executor();
  }
  return at_work != nullptr && at_work->waits_for_wire() ? resources_.context.wire.get() : nullptr;
}

std::uint64_t OperationQueue::next_sequence() const noexcept {
  std::uint64_t next = steps_.sequence().newest() + 1;
  queue_.for_each([&](const Operation& operation) {
    if (operation.is_queued()) ++next;
  });
  return next;
}

std::vector<OperationRecord> OperationQueue::recent_operations() const {
  const FlightRecorder& recorder = resources_.observer->recorder();
  std::vector<OperationRecord> records = recorder.recent();
  std::uint64_t sequence = steps_.sequence().newest();
  queue_.for_each([&](const Operation& one) {
    if (one.is_queued()) records.push_back(recorder.record_of(++sequence, one.call->shape, one.name, one.issued_ticks));
  });
  return records;
}

// ---- failures ----

/// Fails all unfinished operations with the first error that any rank has reported.
void OperationQueue::fail_with(Operation& head, const std::exception_ptr& thrown) noexcept {
  FailureDetector& failure_detector = *resources_.failure_detector;
  const CallInfo call = info_of(head);
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (const TagMismatch& mismatch) {
      failure_detector.report_mismatch(call, mismatch.peer);
    } catch (const Error& error) {
      // An error of a transport is a failure of the communicator, so it is reported to the other ranks. Several hosts
      // may find different pairs of ranks whose counts differ. All ranks then throw the text of one host.
      if (error.code() == Errc::mismatch) failure_detector.await_turn();
      const std::string operation = call_text(call);
      failure_detector.report_failure(
          error.code(), error.peer(), operation,
          head.multi_phase == nullptr ? error.what() : fmt::format("{}: {}", operation, error.what()));
    } catch (const std::exception& error) {  // out of memory, or a user op that throws against its contract
      const std::string operation = call_text(call);
      const Rank rank = resources_.rank();
      failure_detector.report_failure(Errc::system, rank, operation,
                                      fmt::format("{}: rank {}: {}", operation, rank, error.what()));
    }
    failure_detector.throw_failure();
  } catch (...) {
    fail_all(head, std::current_exception());
  }
}

void OperationQueue::fail_all(Operation& first, std::exception_ptr error) noexcept {
  const auto fail = [&](Operation& one) {
    if (one.multi_phase != nullptr) std::exchange(one.multi_phase, nullptr)->abandon();
    if (&one != &first && one.is_running()) resources_.observer->fail_too(one);
    one.error = error;
    one.phase.store(Operation::Phase::failed, std::memory_order_release);
  };
  failure_ = error;
  DeviceCalls::BegunPaths begun{};
  const auto add_begun = [&](const Operation& one) { DeviceCalls::add_begun(one, begun); };
  add_begun(first);
  in_flight_.for_each(add_begun);
  queue_.for_each(add_begun);
  device_calls_.abandon(begun);
  resources_.failure_detector->wait_for_remote_access_end();
  if (resources_.context.wire != nullptr) resources_.context.wire->abandon();
  if (first.is_queued()) steps_.sequence().fail(first);
  fail(first);
  in_flight_.for_each(fail);
  in_flight_.clear();
  queue_.for_each(fail);
  queue_.clear();
  resources_.observer->fail(first, error, *resources_.failure_detector);
}

void OperationQueue::detect_failures() noexcept {
  if (!in_flight_.empty()) detect_failures_of(in_flight_.share());
  if (!queue_.empty() && queue_.front().is_running()) detect_failures_of(queue_.share());
}

void OperationQueue::detect_failures_of(std::shared_ptr<Operation> shared) noexcept {
  Operation& operation = *shared;  // stays valid if the queue drops it
  FailureDetector& failure_detector = *resources_.failure_detector;
  const CallInfo call = info_of(operation);
  // Progresses the operation once more, because its data may have arrived since the last attempt. An operation that
  // completes now does not fail, even if its deadline has passed or another rank has failed.
  const auto completes = [&] {
    progress();
    return operation.finished();
  };
  try {
    steps_.enter_wait(operation);
    if (resources_.context.device != nullptr)
      failure_detector.set_waiting_for_gpu(!queue_.empty() && waits_for_gpu(queue_.front()));
    failure_detector.check_peers(call);
    in_flight_.for_each([&](const Operation& one) { failure_detector.check_mismatch(info_of(one)); });
    resources_.observer->look(operation, failure_detector.arrivals().first_missing(call.sequence));
    const auto now = Clock::now();
    if (operation.issued == Clock::time_point{}) operation.issued = now;
    const auto waited = now - operation.issued;
    if (waited >= operation.timeout) {
      if (completes()) return;
      failure_detector.report_timeout(call, waited);
    }
    const bool reports = !call.signature.split;  // split() reports its waits itself
    if (reports && !operation.stall_reported && waited >= resources_.settings.stall_report) {
      operation.stall_reported = true;
      resources_.observer->stall(
          fmt::format("{} has waited for {:.0f} s: {}", call_text(call), std::chrono::duration<double>(waited).count(),
                      failure_detector.arrivals().missing_text(call.sequence)),
          failure_detector);
    }
  } catch (...) {
    const std::exception_ptr failure = std::current_exception();
    if (!completes()) fail_all(operation, failure);
  }
}

void OperationQueue::end() noexcept {
  if (queue_.empty() && failure_ == nullptr) {  // operations of calls that have returned may still run in GPU streams
    Lock none;
    wait_until_idle(none, true);
  }
  if (!is_idle()) {
    // Reports the failure to peers before the buffers of these operations are freed.
    Operation& head = in_flight_.empty() ? queue_.front() : in_flight_.front();
    const std::string operation = call_text(info_of(head));
    const Rank rank = resources_.rank();
    if (head.is_running())
      resources_.failure_detector->report_failure(
          Errc::peer_lost, rank, operation,
          fmt::format("{}: rank {} was lost: it left the communicator before the end", operation, rank));
    fail_all(head, std::make_exception_ptr(Error(
                       Errc::peer_lost, "the communicator was destroyed before the operation ended", rank, rank)));
  }
}

}  // namespace collectives
