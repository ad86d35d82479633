// A call from its plan to its result: planning, issuing, blocking calls, and operations on host memory.
//
// A blocking call tries to complete without the queue. All functions of that path are in this file, so the compiler can
// inline them. device_calls.cpp holds operations on device memory; progress.cpp holds the queue, waits and failures.
#include "communicator/communicator_impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

/// Number of attempts that a blocking call makes before it joins the queue and waits. 200 attempts take some
/// microseconds, in which a short collective completes. Over a wire there are only 10, because each of them is a system
/// call.
constexpr int kSpinAttempts = 200;
constexpr int kSpinAttemptsOverWire = 10;

std::chrono::nanoseconds timeout_of(const Options& options, const Settings& settings) noexcept {
  return options.timeout.count() != 0 ? options.timeout : settings.timeout;
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

/// Selects the values to send, or adds the residual to a dense input. Returns whether a phase has to be performed.
/// Operations on host memory call it before they reach the head of the queue, while the wire carries earlier
/// operations.
bool Communicator::Impl::compress(State& state) {
  const PlannedCall& planned = *state.call;
  TopKOperation& operation = static_cast<TopKOperation&>(*state.multi_phase);
  // Ranks of one host have frames for one round only.
  const bool all_on_the_wire =
      planned.sparse->in_hosts || context.topology.hosts.size() == static_cast<std::size_t>(size());
  const std::size_t rounds_in_flight = all_on_the_wire ? std::max<std::size_t>(context.tuning.wire_frames, 2) - 1 : 1;
  const std::size_t bytes = planned.signature.count * sizeof(float);
  const TopKOperation::Call sparse{
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
      operation.begin(sparse);
      return operation.next(state.job);
    } else {
      state.job.input = reinterpret_cast<const std::byte*>(operation.dense_input(sparse));
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
    TopKOperation& operation = options.compressor->impl().tensor(options.name).operation();
    state->multi_phase = &operation;
    const Observer::SelectionTimer timer(*observer);
    if (state->on_device)
      operation.reserve();
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

// ---- blocking calls ----

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

// ---- operations on host memory ----

bool Communicator::Impl::progress_operation(State& head) noexcept {
  return progress_with(head, [&] {
    if (head.phase.load(std::memory_order_relaxed) == State::Phase::queued) begin(head);
    return perform(head);
  });
}

/// Starts the executor before it publishes the arrival record. Peers receive their data first.
void Communicator::Impl::begin(State& state) {
  announce(state);
  const std::uint64_t started = observer->time(state);
  executor->start(state.job);
  record_begin(state, started);
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

/// Publishes how many operations this rank has completed in order. Peers read it if this rank is lost. Operations in
/// flight do not count.
void Communicator::Impl::complete(std::uint64_t sequence) noexcept {
  finished_ = std::max(finished_, sequence);
  failure_detector->complete(in_flight_.empty() ? finished_ : std::min(finished_, in_flight_.front().sequence - 1));
}

}  // namespace collectives
