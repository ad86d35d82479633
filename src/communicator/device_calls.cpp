// Operations on device memory, and those in flight in GPU streams.
#include <utility>

#include "communicator/communicator_impl.hpp"
#include "compression/top_k/top_k_impl.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

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

}  // namespace

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

bool Communicator::Impl::progress_on_device(State& head) noexcept {
  return progress_with(head, [&] { return perform_on_device(head); });
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

}  // namespace collectives
