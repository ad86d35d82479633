// Implementation of persistent calls: PersistentCall, the functions of Communicator that make one, and the functions of
// PersistentCall::State that start and end one.
#include "collectives/persistent_call.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "communicator/communicator_impl.hpp"
#include "communicator/host_operation.hpp"
#include "communicator/persistent_state.hpp"
#include "device/placement.hpp"
#include "shared_memory/heap.hpp"

namespace collectives {
namespace {

[[noreturn]] void refuse_call(Errc code, std::string_view collective, std::string_view why, Rank rank) {
  throw Error(code, fmt::format("{}: {}", collective, why), rank, kNoRank, std::string(collective));
}

}  // namespace

// ---- the state ----

void PersistentCall::State::find_allocated(Rank rank) {
  const Sides sides = sides_of(arguments, rank);
  Heap& heap = Heap::of_process();
  const auto guard = heap.lock();
  frees_seen = heap.frees();
  const auto find = [&](bool used, const char* side, const void* data, std::size_t bytes) {
    return AllocatedBuffer{side, data, used && bytes > 0 && heap.find(data) != nullptr ? bytes : 0};
  };
  allocated = {find(sides.input, "input", arguments.input.data, arguments.input.bytes()),
               find(sides.output, "output", arguments.output.data, arguments.output.bytes())};
}

void PersistentCall::State::mark_freed(const DeviceAllocation& memory) noexcept {
  const auto inside = [&](const void* data, std::size_t bytes) {
    return bytes > 0 &&
           reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(memory.data) < memory.bytes;
  };
  if (memory.own && on_device &&
      (inside(arguments.input.data, arguments.input.bytes()) ||
       inside(arguments.output.data, arguments.output.bytes())))
    device_memory_freed = true;
}

void PersistentCall::State::check_still_allocated(Rank rank) {
  const std::string_view collective = to_string(arguments.collective);
  if (device_memory_freed)
    refuse_call(Errc::invalid_argument, collective, "the GPU memory of this persistent call was freed", rank);
  Heap& heap = Heap::of_process();
  const std::uint64_t frees = heap.frees();
  if (frees == frees_seen) return;
  const auto guard = heap.lock();
  for (const auto& [side, data, bytes] : allocated)
    if (bytes > 0 && !heap.is_allocated(data, bytes))
      refuse_call(Errc::invalid_argument, collective,
                  fmt::format("the {} of this persistent call was freed: it came from allocate()", side), rank);
  frees_seen = frees;
}

std::shared_ptr<PersistentCall::State> PersistentCall::State::make(Communicator::Impl& comm, Call call,
                                                                   const Options& options) {
  comm.check_process(call.collective);
  const CommunicatorResources& resources = comm.resources;
  const Rank rank = resources.rank();
  check_arguments(call, rank, resources.size());
  check_name(call, options.name, rank);
  if (options.compressor != nullptr)
    refuse_call(Errc::unsupported, to_string(call.collective),
                "a persistent call takes no compressor, whose plan may change from call to call", rank);
  const auto lock = comm.progress_thread_.guard();
  comm.queue_.throw_failure();
  if (const std::exception_ptr refused = comm.device_calls_.place(call, options)) std::rethrow_exception(refused);
  const std::shared_ptr<const PlannedCall> planned = comm.preparation_.plan(call, options);
  if (planned->plan.device_path == DevicePath::nccl) check_alignment(call, rank);
  auto state = std::make_shared<State>();
  describe(*state, call, options, planned, resources);
  state->phase = Phase::idle;
  state->owner = &comm;
  state->job.host.known_as = comm.preparation_.repeated_call().next_operands();
  state->arguments = call;
  state->arguments.counts = {};
  state->device_options.stream = options.stream;
  state->on_device = call.memory == Memory::device;
  if (!state->on_device) state->find_allocated(rank);
  comm.handles_.persistent.push_back(state.get());
  return state;
}

void PersistentCall::State::start(const std::shared_ptr<State>& call) {
  State& operation = *call;
  Communicator::Impl& comm = *operation.owner;
  const Rank rank = comm.resources.rank();
  comm.check_process(operation.arguments.collective);
  if (operation.started)
    refuse_call(Errc::invalid_argument, to_string(operation.arguments.collective),
                "this persistent call is started already: wait for it before the next start", rank);
  auto lock = comm.progress_thread_.guard();
  comm.queue_.throw_failure();
  try {
    operation.check_still_allocated(rank);
  } catch (const Error& error) {
    comm.preparation_.throw_refusal(error, operation.arguments, operation.name);
  }
  operation.queue_again();
  if (operation.on_device)
    comm.device_calls_.prepare(operation, operation.arguments, operation.device_options, false, nullptr);
  operation.started = true;
  comm.resources.observer->issue(operation);
  comm.queue_.issue(call);
  if (operation.finished()) return;
  comm.progress_thread_.attach();
  comm.progress_thread_.notify();
}

void PersistentCall::State::leave_owner() noexcept {
  if (owner == nullptr || owner->inherited()) return;
  const auto lock = owner->progress_thread_.guard();
  std::erase(owner->handles_.persistent, this);
  owner->device_calls_.release(*this);
}

// ---- the handle ----

PersistentCall::PersistentCall() noexcept = default;
PersistentCall::PersistentCall(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
PersistentCall::PersistentCall(PersistentCall&&) noexcept = default;
PersistentCall& PersistentCall::operator=(PersistentCall&& other) noexcept {
  if (this != &other) {
    PersistentCall old(std::move(*this));  // its destructor waits for the old operation
    state_ = std::move(other.state_);
  }
  return *this;
}

PersistentCall::~PersistentCall() {
  if (state_ == nullptr) return;
  try {
    wait();
  } catch (const std::exception&) {  // a destructor must not throw; callers that need the error call wait()
  }
  state_->leave_owner();
}

void PersistentCall::start() {
  if (state_ == nullptr) throw Error(Errc::invalid_argument, "start: this object is no persistent call");
  if (state_->owner == nullptr)
    refuse_call(Errc::invalid_argument, to_string(state_->arguments.collective),
                "the communicator of this persistent call was destroyed", kNoRank);
  State::start(state_);
}

void PersistentCall::end() {
  state_->started = false;
  if (state_->error != nullptr) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

bool PersistentCall::test() {
  if (state_ == nullptr || !state_->started) return true;
  if (state_->owner != nullptr && !state_->owner->test(*state_)) return false;
  end();
  return true;
}

void PersistentCall::wait() {
  if (state_ == nullptr || !state_->started) return;
  if (state_->owner != nullptr) state_->owner->wait_until(*state_, Deadline::never());
  end();
}

bool PersistentCall::wait_for(std::chrono::nanoseconds timeout) {
  if (state_ == nullptr || !state_->started) return true;
  if (state_->owner != nullptr && !state_->owner->wait_until(*state_, Deadline::in(timeout))) return false;
  end();
  return true;
}

// ---- the functions that make one ----

PersistentCall Communicator::persistent_all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                                                   const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_, {.collective = Collective::all_reduce, .input = input, .output = output, .op = op}, options));
}

PersistentCall Communicator::persistent_reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                                       const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_, {.collective = Collective::reduce_scatter, .input = input, .output = output, .op = op}, options));
}

PersistentCall Communicator::persistent_reduce_scatter_v(ConstBuffer input, Buffer output,
                                                         std::span<const std::size_t> counts, ReduceOp op,
                                                         const Options& options) {
  return PersistentCall(PersistentCall::State::make(*impl_,
                                                    {.collective = Collective::reduce_scatter,
                                                     .input = input,
                                                     .output = output,
                                                     .op = op,
                                                     .counts = counts,
                                                     .has_counts = true},
                                                    options));
}

PersistentCall Communicator::persistent_all_gather(ConstBuffer input, Buffer output, const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_, {.collective = Collective::all_gather, .input = input, .output = output}, options));
}

PersistentCall Communicator::persistent_all_gather_v(ConstBuffer input, Buffer output,
                                                     std::span<const std::size_t> counts, const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_,
      {.collective = Collective::all_gather, .input = input, .output = output, .counts = counts, .has_counts = true},
      options));
}

PersistentCall Communicator::persistent_broadcast(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_, {.collective = Collective::broadcast, .input = input, .output = output, .root = root}, options));
}

PersistentCall Communicator::persistent_reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root,
                                               const Options& options) {
  return PersistentCall(PersistentCall::State::make(
      *impl_, {.collective = Collective::reduce, .input = input, .output = output, .op = op, .root = root}, options));
}

PersistentCall Communicator::persistent_barrier(const Options& options) {
  return PersistentCall(PersistentCall::State::make(*impl_, {.collective = Collective::barrier}, options));
}

}  // namespace collectives
