// Implementation of Communicator::Impl, which performs the calls of a Communicator.
//
// Each collective passes four checks in this order:
//
//   this process has made the communicator
//   no other collective of the communicator is under way
//   the arguments are valid
//   the communicator has not failed
//
// Then the call gets a plan, which names its algorithm. An Operation represents the call until it ends. Unfinished
// operations wait in the queue. A short blocking call on host (CPU) memory usually completes without the queue.
//
// If a blocking call has the same arguments as the last blocking call, run() skips the check of the arguments and the
// planning. Most functions that run() then calls are inline in headers, for speed.
//
// This file also contains the construction and destruction of the communicator, and the error that calls throw in a
// forked child process.
#include "communicator/communicator_impl.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "base/reported_wait.hpp"
#include "communicator/test_backoff.hpp"
#include "compression/top_k/top_k_impl.hpp"

namespace collectives {

// ---- issuing ----

std::shared_ptr<Work::State> Communicator::Impl::issue(Call call, const Options& options, std::exception_ptr refused) {
  check_process(call.collective);
  const OneCall::Entered entered(one_call_, resources.rank(), call.collective);
  preparation_.check(call, options);
  auto lock = progress_thread_.guard();
  queue_.throw_failure();
  const std::shared_ptr<const PlannedCall> planned = preparation_.prepare(call, options, refused);
  std::shared_ptr<Work::State> state;
  try {
    state = handles_.works.unused();
    state->owner = this;
    describe(*state, call, options, planned, resources);
    if (call.memory == Memory::device) device_calls_.prepare(*state, call, options, false, std::move(refused));
    if (planned->sparse) {
      TopKOperation& operation = options.compressor->impl().tensor(options.name).operation();
      state->multi_phase = &operation;
      const Observer::SelectionTimer timer(*resources.observer);
      if (state->on_device)
        operation.reserve();
      else
        compress(*state, resources);
    }
  } catch (const std::exception& error) {  // out of memory
    preparation_.refuse_locked(call, error.what(), options.name);
    throw;
  }
  resources.observer->issue_async(*state);
  progress_thread_.attach();
  queue_.issue(state);
  if (!state->finished()) progress_thread_.notify();
  return state;
}

// ---- blocking calls ----

void Communicator::Impl::run(Call&& call, const Options& options) {
  check_process(call.collective);
  const OneCall::Entered entered(one_call_, resources.rank(), call.collective);
  if (!preparation_.repeated_call().equals(call, options, timeout_of(options, resources.settings))) {
    preparation_.check(call, options);
    return run_checked(call, options, false);
  }
  // The call repeats the last blocking call. All blocking calls use one operation object, which therefore still
  // describes the call and its plan.
  auto lock = progress_thread_.guard();
  queue_.throw_failure();
  queue_.blocking().queue_again();
  queue_.run_blocking(lock, true);
}

void Communicator::Impl::run_checked(Call& call, const Options& options, bool repeats) {
  auto lock = progress_thread_.guard();
  queue_.throw_failure();
  preparation_.repeated_call().forget();
  Operation& operation = queue_.blocking();
  if (repeats) {
    describe_buffers(operation, call, *operation.call, resources);
    operation.queue_again();
  } else {
    std::exception_ptr refused;
    const std::shared_ptr<const PlannedCall> planned = preparation_.prepare(call, options, refused);
    if (call.memory == Memory::device) return run_on_device(call, options, planned, std::move(refused), lock);
    describe(operation, call, options, planned, resources);
    preparation_.repeated_call().remember(call, options, operation.timeout, resources.context.device != nullptr,
                                          operation.job);
  }
  queue_.run_blocking(lock, !queue_.is_too_far_ahead());
}

void Communicator::Impl::run_with_reports(const Call& call, std::string_view what) {
  const std::shared_ptr<Work::State> state = issue(call, {});
  ReportedWait waiting(what, resources.rank(), Deadline::never(), [&] {
    const auto lock = progress_thread_.guard();
    const ArrivalTable& arrivals = resources.failure_detector->arrivals();
    return ReportedWait::Awaited{.ranks = arrivals.missing(state->sequence), .last_answer = arrivals.progress_text()};
  });
  while (!wait_until(*state, Deadline::in(std::chrono::milliseconds(waiting.milliseconds_left())))) waiting.turn();
  if (state->error != nullptr) std::rethrow_exception(state->error);
}

/// Performs a call on GPU memory. Takes an operation object from a pool, because the work in a GPU stream may continue
/// after the call has returned.
void Communicator::Impl::run_on_device(const Call& call, const Options& options,
                                       const std::shared_ptr<const PlannedCall>& planned, std::exception_ptr refused,
                                       OperationQueue::Lock& lock) {
  const auto state = handles_.works.unused();
  state->owner = this;
  describe(*state, call, options, planned, resources);
  device_calls_.prepare(*state, call, options, true, std::move(refused));
  resources.observer->issue(*state);
  queue_.run(state, lock);
  if (queue_.has_in_flight()) {
    progress_thread_.attach();
    progress_thread_.notify();
  }
  if (state->error != nullptr) std::rethrow_exception(state->error);
}

// ---- waiting ----

bool Communicator::Impl::wait_until(Operation& state, Deadline until) {
  check_process(state.call->signature.collective);
  const OneCall::Entered entered(one_call_, resources.rank(), state.call->signature.collective);
  auto lock = progress_thread_.guard();
  if (!state.finished()) queue_.progress();
  if (!state.finished()) queue_.wait_until(state, until, lock);
  return state.finished();
}

bool Communicator::Impl::test(Operation& state) {
  check_process(state.call->signature.collective);
  bool moved = false;
  if (!state.finished()) {
    const OneCall::Entered entered(one_call_, resources.rank(), state.call->signature.collective);
    const auto lock = progress_thread_.guard();
    moved = queue_.progress_in_test();
  }
  note_test(state.finished(), moved, resources.context.oversubscribed);
  return state.finished();
}

void Communicator::Impl::progress() {
  check_process("progress");
  const auto lock = progress_thread_.guard();
  queue_.progress_all();
  messages.engine().progress_as_member(true);
}

void Communicator::Impl::check_peers(std::string_view operation) {
  const auto lock = progress_thread_.guard();
  resources.failure_detector->check_between_calls(operation);
}

void Communicator::Impl::retune(const TuningParameters& tuning) {
  resources.context.tuning = tuning;
  resources.context.public_tuning = tuning;
  resources.planner->forget();
  preparation_.repeated_call().forget();
}

std::unique_ptr<NcclComm> Communicator::Impl::split_nccl_comm(int color, int key) {
  if (resources.nccl() == nullptr) return nullptr;
  auto lock = progress_thread_.guard();
  queue_.wait_until_idle(lock, false);
  queue_.throw_failure();
  try {
    return device_calls_.split(color, key, queue_.next_sequence());
  } catch (...) {
    queue_.set_failure(std::current_exception());
    throw;
  }
}

// ---- construction and end ----

Communicator::Impl::Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
                         Visibility visibility, std::unique_ptr<NcclComm> nccl_comm)
    : resources(bootstrap, options, measure, visibility, std::move(nccl_comm)) {}

Communicator::Impl::~Impl() {
  progress_thread_.stop();
  messages.end();
  queue_.end();
  if (resources.context.injection != nullptr) resources.context.injection->report_missed(queue_.next_sequence() - 1);
  device_memories_.detach();
  if (!queue_.has_failed()) device_calls_.leave();
  handles_.for_each([this](auto& state) {
    state.owner = nullptr;
    device_calls_.release(state);
  });
  device_calls_.release(queue_.blocking());
  Wire* const wire = resources.context.wire.get();
  if (wire == nullptr) resources.failure_detector->log_difference_at_end();
  if (wire != nullptr) try {
      // Sends a failure that other hosts have not received yet.
      resources.failure_detector->check_control_and_leave();
      resources.failure_detector->log_difference_at_end();
      resources.failure_detector->announce_leave();
    } catch (const std::exception&) {
      return;
    }
  if (wire != nullptr && !queue_.has_failed() && !messages.engine().has_failed()) try {
      wire->flush(resources.leave_deadline());
    } catch (const std::exception& error) {
      log_warning(resources.rank(), "leaving a communicator: {}", error.what());
    }
}

// ---- in a child made by fork() ----

void Communicator::Impl::refuse_in_child(std::string_view operation) const {
  const Rank rank = resources.rank();
  throw Error(
      Errc::invalid_argument,
      fmt::format("rank {}: {}: this communicator belongs to process {}, from which this one was forked: a child "
                  "makes its own",
                  rank, operation, owner_process.process()),
      rank, rank, std::string(operation));
}

/// Keeps the communicator of a forked child in a list, so that leak checkers find a pointer to it.
void Communicator::Impl::leave_to_parent(std::unique_ptr<Impl> inherited) noexcept {
  static constinit std::atomic<Impl*> left{nullptr};
  Impl* const last = inherited.release();
  last->next_left_ = left.exchange(last);
}

}  // namespace collectives
