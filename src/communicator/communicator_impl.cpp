// Life of a call: it is planned and queued, publishes its arrival record, and progresses until it finishes or fails.
#include "communicator/communicator_impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// Number of attempts that a blocking call makes before it joins the queue and waits. 200 attempts take some
/// microseconds, in which a short collective completes. Over a wire there are only 10, because each of them is a system
/// call.
constexpr int kSpinAttempts = 200;
constexpr int kSpinAttemptsOverWire = 10;

std::chrono::nanoseconds timeout_of(const Options& options, const Settings& settings) noexcept {
  return options.timeout.count() != 0 ? options.timeout : settings.timeout;
}

/// Calls `ask`. Turns an error of the GPU or NCCL into a runtime_error. fail_with() then adds operation and rank to its
/// text.
template <class Ask>
auto with_gpu(Ask&& ask) {
  try {
    return ask();
  } catch (const Error& error) {
    if (error.operation().empty() && (error.code() == Errc::system || error.code() == Errc::aborted))
      throw std::runtime_error(error.what());
    throw;
  }
}

/// Returns the address of element 0 of the vector, for a buffer that begins with element `first`. The library never
/// accesses memory outside of the buffer through it.
template <class Byte, class Void>
Byte* from_element(Void* data, std::size_t first, std::size_t element_bytes) {
  return reinterpret_cast<Byte*>(reinterpret_cast<std::uintptr_t>(data) - first * element_bytes);
}

}  // namespace

// ---- planning ----

const std::shared_ptr<const PlannedCall>& Communicator::Impl::plan(const Call& call, const Options& options) {
  std::size_t k = 0;
  if (options.compressor != nullptr) {
    check_compressor(call, options.name, rank());
    k = options.compressor->impl().next_k(options.name, call.output.count, rank());
  }
  return planner->plan(call, options, k);
}

std::shared_ptr<const PlannedCall> Communicator::Impl::plan_of(Collective collective, std::size_t count, DataType type,
                                                               ReduceOp op, const Options& options) {
  const Call call{.collective = collective,
                  .input = {nullptr, count, type},
                  .output = {nullptr, count, type},
                  .op = op,
                  .memory = options.stream ? Memory::device : Memory::host};
  check_vocabulary(call, rank());
  return plan(call, options);
}

// ---- issuing ----

std::unique_lock<std::mutex> Communicator::Impl::guard() {
  if (progress_engine_ != nullptr) attach_to_this_thread();
  return threaded_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void Communicator::Impl::attach_to_this_thread() {
  if (progress_engine_ != nullptr && progress_engine_.get() == ProgressEngine::of_this_thread()) return;
  if (progress_engine_ != nullptr) progress_engine_->remove(*this);
  progress_engine_ = ProgressEngine::make_for_this_thread();
  if (progress_engine_ != nullptr) progress_engine_->add(*this);
}

std::shared_ptr<Work::State> Communicator::Impl::new_state(const Call& call, const Options& options,
                                                           const std::shared_ptr<const PlannedCall>& planned) {
  std::shared_ptr<State> state;
  for (auto& pooled : pool_)
    if (pooled.use_count() == 1) {
      state = pooled;
      break;
    }
  if (state == nullptr) state = pool_.emplace_back(std::make_shared<State>());
  state->owner = this;
  fill(*state, call, options, planned);
  return state;
}

void Communicator::Impl::fill(State& filled, const Call& call, const Options& options,
                              const std::shared_ptr<const PlannedCall>& planned) {
  State* const state = &filled;
  state->phase.store(State::Phase::queued, std::memory_order_relaxed);
  state->name.assign(options.name);
  state->timeout = timeout_of(options, settings);
  state->issued = {};
  state->stall_reported = false;
  state->error = nullptr;
  state->multi_phase = nullptr;
  state->on_device = false;

  Job& job = state->job;
  job.plan = &planned->plan;
  if (!planned->single_step) job.args = args_of(*planned);
  job.op = call.op;
  job.type = planned->signature.type;
  job.input_stream = nullptr;
  // the plan may hold an older codec of the same kind
  job.codec = planned->plan.coded ? codec_of(options.wire, call, rank()) : nullptr;
  const std::size_t element = size_of(job.type);
  const std::size_t mine = planned->parts.size() > 1 ? planned->parts.full(rank()).first : 0;
  const bool part_in = call.collective == Collective::all_gather,
             part_out = call.collective == Collective::reduce_scatter;
  job.input = from_element<const std::byte>(call.input.data, part_in ? mine : 0, element);
  job.output = from_element<std::byte>(call.output.data, part_out ? mine : 0, element);
  job.single_step = planned->single_step ? &*planned->single_step : nullptr;
  if (job.single_step != nullptr)
    job.host = {.source = job.input,
                .destination = job.output,
                .type = job.type,
                .op = job.op,
                .finish_ranks = job.single_step->finish ? size() : 0};
  if (state->call != planned) state->call = planned;
}

std::exception_ptr Communicator::Impl::place(Call& call, const Options& options) const {
  if (context.device == nullptr) {
    if (options.stream)
      throw Error(Errc::unsupported,
                  fmt::format("{}: a stream was given, and this communicator takes no device buffers: {}",
                              to_string(call.collective), context.no_device),
                  rank(), kNoRank, std::string(to_string(call.collective)));
    return nullptr;
  }
  try {
    call.memory = memory_of(*context.device, call, options.stream, context.topology.gpus, rank());
  } catch (const Error& error) {
    if (error.code() != Errc::system) throw;
    call.memory = Memory::device;
    return std::current_exception();
  }
  return nullptr;
}

void Communicator::Impl::make_device_call(State& state, const Call& call, const Options& options, bool blocking,
                                          std::exception_ptr refused) {
  if (state.device == nullptr) state.device = std::make_unique<DeviceCall>();
  state.on_device = true;
  DeviceCall& device = *state.device;
  device.call = call;
  device.call.counts = {};
  device.call.tensors = {};
  device.tensors.assign(call.tensors.begin(), call.tensors.end());
  device.mine = state.call->parts.size() > 1 ? state.call->parts.full(rank()).first : 0;
  device.stream = options.stream;
  device.ends_in_stream = blocking;
  device.tensor = options.compressor == nullptr ? nullptr : &options.compressor->impl().tensor(options.name);
  device.refused = std::move(refused);
  device.started = device.in_host = device.with_gpu = device.in_flight = false;
  if (!device.stream || device.refused != nullptr) return;
  try {
    if (device.ready == nullptr) device.ready = context.device->new_event();
    context.device->record(device.ready, *device.stream);
  } catch (const std::exception&) {
    device.refused = std::current_exception();
  }
}

void Communicator::Impl::release_device_call(State& state) noexcept {
  if (state.device != nullptr && state.device->ready != nullptr) context.device->end_event(state.device->ready);
  state.device = nullptr;
}

void Communicator::Impl::announce(State& state) {
  state.sequence = sequence_ + 1;  // errors name this number, even if the operation does not begin
  // A call that waits for no peer must read control messages now. It will not wait, so it cannot read them later.
  if (context.wire != nullptr)
    state.call->waits_for_no_peer ? failure_detector->check_control() : failure_detector->check_control_throttled();
  failure_detector->check();
  sequence_ = state.sequence;
  state.job.tag = state.job.host.tag = make_tag(state.sequence, state.call->hash);
}

void Communicator::Impl::record_begin(State& state, std::uint64_t started) {
  failure_detector->arrive(state.sequence, state.call->words);
  observer->start(state, started);
  state.phase.store(State::Phase::running, std::memory_order_relaxed);
  if (state.call->waits_for_no_peer)
    failure_detector->check_lost_peers({state.sequence, state.call->signature, state.name});
}

/// Starts the executor before it publishes the arrival record. Peers receive their data first.
void Communicator::Impl::begin(State& state) {
  announce(state);
  const std::uint64_t started = observer->time(state);
  executor->start(state.job);
  record_begin(state, started);
}

/// Selects the values to send, or adds the residual to a dense input. Returns whether a phase has to be performed.
/// Operations on host memory call it before they reach the head of the queue, while the wire carries earlier
/// operations.
bool Communicator::Impl::compress(State& state) {
  const PlannedCall& planned = *state.call;
  SparseTensor& tensor = static_cast<SparseTensor&>(*state.multi_phase);
  // Ranks of one host have frames for one round only.
  const bool all_on_the_wire =
      planned.sparse->in_hosts || context.topology.hosts.size() == static_cast<std::size_t>(size());
  const std::size_t rounds_in_flight = all_on_the_wire ? std::max<std::size_t>(context.tuning.wire_frames, 2) - 1 : 1;
  const std::size_t bytes = planned.signature.count * sizeof(float);
  const SparseTensor::Call sparse{
      .plan = &*planned.sparse,
      .view = view.get(),
      .tuning = &context.tuning,
      .rounds_in_flight = rounds_in_flight,
      .input = reinterpret_cast<const float*>(state.job.input),
      .output = reinterpret_cast<float*>(state.job.output),
      .divisor = state.job.op.kind() == ReduceOp::Kind::average ? static_cast<float>(size()) : 1.0F,
      .dense_bytes = 2 * bytes / static_cast<std::size_t>(size()) * static_cast<std::size_t>(size() - 1)};
  try {
    if (planned.sparse->sparse) {
      tensor.begin(sparse);
      return tensor.next(state.job);
    } else {
      state.job.input = reinterpret_cast<const std::byte*>(tensor.dense_input(sparse));
      state.job.host.source = state.job.input;
    }
  } catch (...) {  // out of memory
    std::exchange(state.multi_phase, nullptr)->abandon();
    throw;
  }
  return true;
}

std::shared_ptr<Work::State> Communicator::Impl::issue(Call call, const Options& options, std::exception_ptr refused) {
  check_process(call.collective);
  check_arguments(call, rank(), size());
  auto lock = guard();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (refused == nullptr)
    refused = place(call, options);
  else
    call.memory = Memory::device;
  const std::shared_ptr<const PlannedCall> planned = plan(call, options);
  if (planned->plan.device_path == DevicePath::nccl) check_alignment(call, rank());
  auto state = new_state(call, options, planned);
  if (call.memory == Memory::device) make_device_call(*state, call, options, false, std::move(refused));
  if (planned->sparse) {
    SparseTensor& tensor = options.compressor->impl().tensor(options.name);
    state->multi_phase = &tensor;
    const Observer::SelectionTimer timer(*observer);
    if (state->on_device)
      tensor.reserve();
    else
      compress(*state);
  }
  observer->issue_async(*state);
  if (!threaded_) attach_to_this_thread();
  queue_.push(state);
  progress_queue();
  if (threaded_ && !state->finished()) work_to_do_.notify_one();
  return state;
}

/// Returns whether the call has only buffers, a built-in op, a root, a backend and a timeout. A user's op does not
/// count, because another op may have been made at the same address.
static bool plain(const Call& call, const Options& options) noexcept {
  return !call.has_counts && call.layout == 0 && call.op.user_op() == nullptr && options.name.empty() &&
         !options.deterministic.has_value() && options.wire == WireFormat() && options.compressor == nullptr &&
         !options.stream;
}

bool Communicator::Impl::repeats_last_call(const Call& call, const Options& options) const noexcept {
  return repeatable_ && call.input == last_call_.input && call.output == last_call_.output &&
         call.collective == last_call_.collective && call.op == last_call_.op && call.root == last_call_.root &&
         options.backend == last_backend_ && timeout_of(options, settings) == blocking_->timeout &&
         plain(call, options);
}

int Communicator::Impl::spin_attempts() const noexcept {
  return context.oversubscribed ? 1 : context.wire != nullptr ? kSpinAttemptsOverWire : kSpinAttempts;
}

void Communicator::Impl::run(Call&& call, const Options& options) {
  check_process(call.collective);
  if (!repeats_last_call(call, options)) return plan_and_run(std::move(call), options);
  // `blocking_` holds the checked and planned call.
  auto lock = guard();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  State& state = *blocking_;
  state.phase.store(State::Phase::queued, std::memory_order_relaxed);
  state.issued = {};
  state.stall_reported = false;
  finish_blocking(lock, true);
}

void Communicator::Impl::plan_and_run(Call&& call, const Options& options) {
  check_arguments(call, rank(), size());
  auto lock = guard();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  repeatable_ = false;
  std::exception_ptr refused = place(call, options);
  if (call.memory == Memory::device) return run_on_device(call, options, std::move(refused), lock);
  fill(*blocking_, call, options, plan(call, options));
  last_call_ = call;
  last_backend_ = options.backend;
  repeatable_ = plain(call, options) && context.device == nullptr;  // with a GPU, the address may be other memory now
  if (repeatable_) blocking_->job.host.known_as = ++operands_;
  finish_blocking(lock, !too_far_ahead());
}

/// Takes a state from the pool instead of `blocking_`: in a stream, the operation may continue after the call has
/// returned.
void Communicator::Impl::run_on_device(const Call& call, const Options& options, std::exception_ptr refused,
                                       std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<const PlannedCall> planned = plan(call, options);
  if (planned->plan.device_path == DevicePath::nccl) check_alignment(call, rank());
  const std::shared_ptr<State> state = new_state(call, options, planned);
  make_device_call(*state, call, options, true, std::move(refused));
  observer->issue(*state);
  queue_.push(state);
  progress_queue();
  if (!returns(*state)) wait_until(*state, Deadline::never(), lock);
  if (!in_flight_.empty()) threaded_ ? work_to_do_.notify_one() : attach_to_this_thread();
  if (state->error != nullptr) std::rethrow_exception(state->error);
}

void Communicator::Impl::finish_blocking(std::unique_lock<std::mutex>& lock, bool spin) {
  State& state = *blocking_;
  observer->issue(state);
  // A short operation does not enter the queue if the queue is empty.
  bool done = false;
  if (queue_.empty() && spin)
    for (int attempts = spin_attempts(); attempts > 0 && !done; --attempts) done = progress_operation(state);
  if (!done) wait_in_queue(lock);
  if (state.error != nullptr) std::rethrow_exception(std::exchange(state.error, nullptr));
}

void Communicator::Impl::wait_in_queue(std::unique_lock<std::mutex>& lock) {
  queue_.push(blocking_);
  if (!progress_queue() && !blocking_->finished()) wait_until(*blocking_, Deadline::never(), lock);
}

// ---- progress ----

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

// ---- in flight ----

void Communicator::Impl::retire_in_flight() noexcept {
  while (!in_flight_.empty()) {
    const std::shared_ptr<State> first = in_flight_.share();
    const bool retired = progress_with(*first, [&] {
      if (!with_gpu([&] { return path_of(*first).retire_oldest(); })) return false;
      // NCCL completes if the lengths agree, even if the calls differ in something else.
      failure_detector->check_mismatch({first->sequence, first->call->signature, first->name});
      in_flight_.pop();
      return true;
    });
    if (!retired) return;
  }
}

void Communicator::Impl::wait_for_in_flight(std::unique_lock<std::mutex>& lock, bool returned_only) {
  CollectiveBackoff backoff(context.oversubscribed);
  const auto awaited = [&] {
    bool any = !returned_only && !queue_.empty();
    in_flight_.for_each([&](const State& state) { any = any || !returned_only || returns(state); });
    return any;
  };
  while (awaited()) {
    if (lock.owns_lock()) {  // lets the other thread take the lock
      lock.unlock();
      lock.lock();
    }
    const bool check_failures = backoff.wait();
    if (check_failures) detect_failures();
    progress_queue();
    progress_others(check_failures);
  }
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

/// Publishes how many operations this rank has completed in order. Peers read it if this rank is lost. Operations in
/// flight do not count.
void Communicator::Impl::complete(std::uint64_t sequence) noexcept {
  finished_ = std::max(finished_, sequence);
  failure_detector->complete(in_flight_.empty() ? finished_ : std::min(finished_, in_flight_.front().sequence - 1));
}

bool Communicator::Impl::perform(State& head) {
  for (;;) {
    while (!executor->progress())
      if (head.multi_phase == nullptr || !head.multi_phase->local_work()) return false;
    if (head.multi_phase == nullptr) return true;
    observer->phase(Trace::Phase::top_k);
    if (!head.multi_phase->next(head.job)) return true;
    executor->start(head.job);
  }
}

bool Communicator::Impl::perform_on_device(State& head) {
  DeviceCall& device = *head.device;
  PathExecutor& path = path_of(head);
  if (head.phase.load(std::memory_order_relaxed) == State::Phase::queued) {
    announce(head);
    record_begin(head, observer->time(head));
    with_gpu([&] {
      if (device.refused != nullptr) std::rethrow_exception(device.refused);
      device.started = true;
      path.start(device, *head.call, head.job);
    });
  }
  for (;;) {
    const auto performed = [&] { return perform(head); };
    if (device.in_host && !(head.job.input_stream != nullptr ? with_gpu(performed) : performed())) {
      device.with_gpu = executor->waits_for_input();
      return false;
    }
    device.in_host = false;
    const PathExecutor::PathState path_state = with_gpu([&] { return path.progress(); });
    device.with_gpu = path_state == PathExecutor::PathState::gpu;
    device.in_flight = path_state == PathExecutor::PathState::in_flight;
    if (path_state == PathExecutor::PathState::done) return true;
    if (path_state != PathExecutor::PathState::host) return false;
    device.in_host = head.multi_phase == nullptr || compress(head);
    if (device.in_host) executor->start(head.job);
  }
}

bool Communicator::Impl::progress_operation(State& head) noexcept {
  return progress_with(head, [&] {
    if (head.phase.load(std::memory_order_relaxed) == State::Phase::queued) begin(head);
    return perform(head);
  });
}

bool Communicator::Impl::progress_on_device(State& head) noexcept {
  return progress_with(head, [&] { return perform_on_device(head); });
}

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

/// Fails all operations with the first error that any rank has reported.
void Communicator::Impl::fail_with(State& head, const std::exception_ptr& thrown) noexcept {
  const FailureDetector::CallInfo call{head.sequence, head.call->signature, head.name};
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (const TagMismatch& mismatch) {
      failure_detector->report_mismatch(call, mismatch.peer);
    } catch (const Error& error) {
      // An error of a transport is a failure of the communicator, so it is reported to the other ranks.
      const std::string operation = FailureDetector::operation(call);
      failure_detector->report_failure(
          error.code(), error.peer(), operation,
          head.multi_phase == nullptr ? error.what() : fmt::format("{}: {}", operation, error.what()));
    } catch (const std::exception& error) {  // out of memory, or a user op that throws against its contract
      const std::string operation = FailureDetector::operation(call);
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
  const FailureDetector::CallInfo call{state.sequence, state.call->signature, state.name};
  try {
    if (context.device != nullptr) failure_detector->set_waiting_for_gpu(waits_for_gpu());
    failure_detector->check_peers(call);
    in_flight_.for_each([&](const State& one) {
      failure_detector->check_mismatch({one.sequence, one.call->signature, one.name});
    });
    observer->look(state, failure_detector->first_missing(call));
    const auto now = Clock::now();
    if (state.issued == Clock::time_point{}) state.issued = now;
    const auto waited = now - state.issued;
    if (waited >= state.timeout) {
      if (completes(state)) return;
      failure_detector->report_timeout(call, waited);
    }
    if (!state.stall_reported && waited >= settings.stall_report) {
      state.stall_reported = true;
      observer->stall(fmt::format("{} has waited for {:.0f} s: {}", FailureDetector::operation(call),
                                  std::chrono::duration<double>(waited).count(), failure_detector->missing_text(call)),
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

bool Communicator::Impl::progress(bool check_failures) noexcept {
  const std::uint64_t before = moves();
  if (progress_queue() && in_flight_.empty()) return moves() != before;
  if (check_failures) detect_failures();
  return moves() != before;
}

bool Communicator::Impl::progress_others(bool check_failures) noexcept {
  ProgressEngine* others = ProgressEngine::of_this_thread();
  return others != nullptr && others->progress(*this, check_failures);
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
