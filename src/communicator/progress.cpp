// The queue of operations: its progress, waits, failures and the progress thread.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "communicator/communicator_impl.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

bool Communicator::Impl::progress_queue() noexcept {
  retire_in_flight();
  while (!queue_.empty()) {
    State& head = queue_.front();
    if (head.phase.load(std::memory_order_relaxed) == State::Phase::queued && has_to_wait(head)) return false;
    const bool over = head.on_device ? progress_on_device(head) : progress_operation(head);
    if (!over && !(head.on_device && head.device->in_flight)) return false;
    if (!over)
      in_flight_.push(queue_.take());
    else if (!queue_.empty())
      queue_.pop();  // empty after a failure
  }
  return true;
}

/// Returns whether `head` has to stay in the queue for now. Allocating or freeing memory may wait for the GPU, whose
/// work in flight may wait for other ranks. The caller still detects failures of those operations.
bool Communicator::Impl::has_to_wait(const State& head) const noexcept {
  if (in_flight_.empty()) return false;
  return too_far_ahead() || (head.on_device && path_of(head).takes_memory(*head.device, *head.call));
}

bool Communicator::Impl::too_far_ahead() const noexcept {
  return !in_flight_.empty() && sequence_ - in_flight_.front().sequence >= kRecords / 2;
}

bool Communicator::Impl::returns(const State& state) noexcept {
  return state.finished() ||
         (state.on_device && state.device->in_flight && state.device->ends_in_stream && state.device->stream);
}

// ---- failures ----

/// Fails all operations with the first error that any rank has reported.
void Communicator::Impl::fail_with(State& head, const std::exception_ptr& thrown) noexcept {
  const CallInfo call{head.sequence, head.call->signature, head.name};
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (const TagMismatch& mismatch) {
      failure_detector->report_mismatch(call, mismatch.peer);
    } catch (const Error& error) {
      // An error of a transport is a failure of the communicator, so it is reported to the other ranks.
      const std::string operation = call_text(call);
      failure_detector->report_failure(
          error.code(), error.peer(), operation,
          head.multi_phase == nullptr ? error.what() : fmt::format("{}: {}", operation, error.what()));
    } catch (const std::exception& error) {  // out of memory, or a user op that throws against its contract
      const std::string operation = call_text(call);
      failure_detector->report_failure(Errc::system, rank(), operation,
                                       fmt::format("{}: rank {}: {}", operation, rank(), error.what()));
    }
    failure_detector->throw_failure();
  } catch (...) {
    fail_all(head, std::current_exception());
  }
}

void Communicator::Impl::fail_all(State& first, std::exception_ptr error) noexcept {
  const auto fail = [&](State& state) {
    if (state.multi_phase != nullptr) std::exchange(state.multi_phase, nullptr)->abandon();
    if (&state != &first && state.phase.load(std::memory_order_relaxed) == State::Phase::running)
      observer->fail_too(state);
    state.error = error;
    state.phase.store(State::Phase::failed, std::memory_order_release);
  };
  failure_ = error;
  // Abandon the device paths of all operations that have begun on the GPU.
  std::array<bool, kDevicePaths> begun{};
  const auto note = [&](const State& state) {
    if (state.on_device && state.device->started) begun[static_cast<std::size_t>(state.call->plan.device_path)] = true;
  };
  note(first);
  in_flight_.for_each(note);
  queue_.for_each(note);
  for (std::size_t path = 0; path < kDevicePaths; ++path)
    if (begun[path]) paths[path]->abandon();
  failure_detector->wait_for_remote_access_end();
  if (context.wire != nullptr) context.wire->abandon();
  // The operation has not begun. It is recorded all the same, because its peers have recorded the call under this
  // number.
  if (first.phase.load(std::memory_order_relaxed) == State::Phase::queued) {
    sequence_ = first.sequence;
    observer->start(first, observer->time(first));
  }
  fail(first);
  in_flight_.for_each(fail);
  in_flight_.clear();
  queue_.for_each(fail);
  queue_.clear();
  observer->fail(first, error, *failure_detector);
}

/// Detects failures in the slow path of every wait: lost peers, mismatches, a stall, the deadline of the oldest
/// operation.
void Communicator::Impl::detect_failures() noexcept {
  if (!in_flight_.empty()) detect_failures_of(in_flight_.share());
  if (!queue_.empty() && queue_.front().phase.load(std::memory_order_relaxed) == State::Phase::running)
    detect_failures_of(queue_.share());
}

void Communicator::Impl::detect_failures_of(std::shared_ptr<State> shared) noexcept {
  State& state = *shared;  // stays valid if its queue drops it
  const CallInfo call{state.sequence, state.call->signature, state.name};
  try {
    if (context.device != nullptr) failure_detector->set_waiting_for_gpu(waits_for_gpu());
    failure_detector->check_peers(call);
    in_flight_.for_each([&](const State& one) {
      failure_detector->check_mismatch({one.sequence, one.call->signature, one.name});
    });
    observer->look(state, failure_detector->arrivals().first_missing(call.sequence));
    const auto now = Clock::now();
    if (state.issued == Clock::time_point{}) state.issued = now;
    const auto waited = now - state.issued;
    if (waited >= state.timeout) {
      if (completes(state)) return;
      failure_detector->report_timeout(call, waited);
    }
    if (!state.stall_reported && waited >= settings.stall_report) {
      state.stall_reported = true;
      observer->stall(
          fmt::format("{} has waited for {:.0f} s: {}", call_text(call), std::chrono::duration<double>(waited).count(),
                      failure_detector->arrivals().missing_text(call.sequence)),
          *failure_detector);
    }
  } catch (...) {
    const std::exception_ptr failure = std::current_exception();
    if (!completes(state)) fail_all(state, failure);
  }
}

/// Tries once more to progress, and returns whether `state` has finished. Its data may have arrived since the last
/// attempt. A passed deadline then does not count, and an error of another rank belongs to the next call.
bool Communicator::Impl::completes(State& state) noexcept {
  progress_queue();
  return state.finished();
}

// ---- waiting ----

void Communicator::Impl::wait_until(State& state, Deadline until, std::unique_lock<std::mutex>& lock) {
  const Observer::WaitTimer timer(*observer, state);
  CollectiveBackoff backoff(context.oversubscribed);
  std::uint64_t moved = moves();
  for (;;) {
    if (lock.owns_lock()) {  // lets the other thread take the lock
      lock.unlock();
      lock.lock();
      if (returns(state)) return;
    }
    const bool check_failures = backoff.wait(waits_for_wire() ? context.wire.get() : nullptr);
    if (check_failures) {
      detect_failures();
      if (until.passed()) return;
    }
    progress_queue();
    if (returns(state)) return;
    const bool others_progressed = progress_others(check_failures);
    if (moves() != std::exchange(moved, moves()) || others_progressed) backoff.reset();
  }
}

bool Communicator::Impl::wait(State& state, Deadline until) {
  check_process(state.call->signature.collective);
  auto lock = guard();
  if (!state.finished()) progress_queue();
  if (!state.finished()) wait_until(state, until, lock);
  return state.finished();
}

bool Communicator::Impl::test(State& state) {
  check_process(state.call->signature.collective);
  thread_local TestBackoff backoff;  // a thread may test operations of several communicators in turn
  if (!state.finished()) {
    auto lock = guard();
    progress_locked();
    const bool moved = moves() != std::exchange(moved_at_test_, moves());
    if (lock.owns_lock()) lock.unlock();
    if (!state.finished()) {
      if (moved)
        backoff.fruitful();
      else if (context.oversubscribed)
        backoff.fruitless();
      return false;
    }
  }
  backoff.fruitful();
  return true;
}

bool Communicator::Impl::waits_for_gpu() const noexcept {
  if (queue_.empty()) return false;
  const State& head = queue_.front();
  return head.on_device && head.device->with_gpu;
}

bool Communicator::Impl::waits_for_wire() const noexcept {
  const Executor* at_work = executor.get();
  if (!queue_.empty() && queue_.front().on_device && !queue_.front().device->in_host)
    at_work = path_of(queue_.front()).executor();
  return at_work != nullptr && at_work->waits_for_wire() && !waits_for_gpu();
}

std::uint64_t Communicator::Impl::moves() const noexcept {
  std::uint64_t moves = executor->moves();
  for (const auto& path : paths)
    if (path != nullptr) moves += path->moves();
  return moves;
}

// ---- progress without a wait ----

bool Communicator::Impl::progress_as_member(bool check_failures) noexcept {
  const std::uint64_t before = moves();
  if (progress_queue() && in_flight_.empty()) return moves() != before;
  if (check_failures) detect_failures();
  return moves() != before;
}

void Communicator::Impl::progress() {
  check_process("progress");
  auto lock = guard();
  progress_locked();
}

void Communicator::Impl::progress_locked() {
  if (progress_queue() && in_flight_.empty()) return;
  const auto now = Clock::now();
  const bool check_failures = now - looked_ >= std::chrono::milliseconds(1);
  progress_others(check_failures);
  if (!check_failures) return;
  looked_ = now;
  detect_failures();
}

bool Communicator::Impl::progress_others(bool check_failures) noexcept {
  ProgressEngine* others = ProgressEngine::of_this_thread();
  return others != nullptr && others->progress(*this, check_failures);
}

/// Runs in the progress thread: progresses operations while the program computes.
void Communicator::Impl::progress_loop() {
  if (context.device != nullptr) context.device->make_current();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    work_to_do_.wait(lock, [this] { return stop_ || !queue_.empty() || !in_flight_.empty(); });
    CollectiveBackoff backoff(context.oversubscribed);
    std::uint64_t moved = moves();
    while (!stop_ && !(progress_queue() && in_flight_.empty())) {
      if (moves() != std::exchange(moved, moves())) backoff.reset();
      lock.unlock();
      const bool check_failures = backoff.wait();
      lock.lock();
      if (check_failures) detect_failures();
    }
  }
}

}  // namespace collectives
