// Implementation of persistent calls. A persistent call is checked and planned once, and started many times, as in MPI.
//
// The program makes a persistent call with a function of Communicator, such as persistent_all_reduce(), which also
// fixes the buffers. PersistentCall is the handle that the program holds. It refers to a PersistentCall::State, which
// is the operation. A start does not check the arguments again. It only checks that the communicator is usable, that
// the operation of the previous start has ended, and that the buffers still exist.
#include "collectives/persistent_call.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/wait.hpp"
#include "communicator/call_arguments.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/host_operation.hpp"
#include "communicator/persistent_state.hpp"
#include "device/placement.hpp"
#include "shared_memory/heap.hpp"

namespace collectives {
namespace {

[[noreturn]] void refuse_call(Errc code, std::string_view name, std::string_view why, Rank rank) {
  throw Error(code, fmt::format("{}: {}", name, why), rank, kNoRank, std::string(name));
}

}  // namespace

// ---- the state ----

std::string_view PersistentCall::State::call_name() const noexcept {
  return messages != nullptr ? messages->name : to_string(arguments.collective);
}

void PersistentCall::State::find_allocated(const std::array<AllocatedBuffer, 2>& buffers) {
  allocated = buffers;
  Heap& heap = Heap::of_process();
  const auto guard = heap.lock();
  frees_seen = heap.frees();
  for (AllocatedBuffer& buffer : allocated)
    if (buffer.bytes > 0 && heap.find(buffer.data) == nullptr) buffer.bytes = 0;
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
  if (device_memory_freed)
    refuse_call(Errc::invalid_argument, call_name(), "the GPU memory of this persistent call was freed", rank);
  Heap& heap = Heap::of_process();
  const std::uint64_t frees = heap.frees();
  if (frees == frees_seen) return;
  const auto guard = heap.lock();
  for (const auto& [side, data, bytes] : allocated)
    if (bytes > 0 && !heap.is_allocated(data, bytes))
      refuse_call(Errc::invalid_argument, call_name(),
                  fmt::format("the {} of this persistent call was freed: it came from allocate()", side), rank);
  frees_seen = frees;
}

PersistentCall PersistentCall::State::make(Communicator::Impl& comm, Call call, const Options& options) {
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
  state->arguments.counts = state->arguments.displacements = {};
  state->arguments.input_parts = {};
  state->device_options.stream = options.stream;
  state->on_device = call.memory == Memory::device;
  const Sides sides = sides_of(call, rank);
  if (!state->on_device)
    state->find_allocated({{{"input", call.input.data, sides.input ? call.input.bytes() : 0},
                            {"output", call.output.data, sides.output ? call.output.bytes() : 0}}});
  comm.handles_.persistent.push_back(state.get());
  return PersistentCall(std::move(state));
}

PersistentCall PersistentCall::State::make(Communicator::Impl& comm, std::string_view name,
                                           std::vector<CheckedMessage> calls) {
  auto state = std::make_shared<State>();
  state->owner = &comm;
  std::array<AllocatedBuffer, 2> buffers;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const MessageCall& call = calls[i].call;
    buffers[i] = {calls.size() == 1 ? "buffer" : call.sends() ? "input" : "output", call.data, call.bytes()};
  }
  state->find_allocated(buffers);
  state->messages = std::make_unique<PersistentMessages>(name, std::move(calls));
  const auto lock = comm.progress_thread_.guard();
  comm.handles_.persistent.push_back(state.get());
  return PersistentCall(std::move(state));
}

void PersistentCall::State::start(const std::shared_ptr<State>& call) {
  State& operation = *call;
  Communicator::Impl& comm = *operation.owner;
  const Rank rank = comm.resources.rank();
  comm.check_process(operation.call_name());
  if (operation.started)
    refuse_call(Errc::invalid_argument, operation.call_name(),
                "this persistent call is started already: wait for it before the next start", rank);
  if (operation.messages != nullptr) {
    operation.check_still_allocated(rank);
    comm.messages.start(operation.messages->name, operation.messages->calls, operation.messages->operations());
    operation.started = true;
    return;
  }
  auto lock = comm.progress_thread_.guard();
  comm.queue_.throw_failure();
  try {
    operation.check_still_allocated(rank);
  } catch (const Error& error) {
    const std::uint64_t number = comm.preparation_.refuse_locked(operation.arguments, error.what(), operation.name);
    throw_refusal(error, operation.arguments, number, operation.name);
  }
  operation.queue_again();
  if (operation.counted != nullptr) {
    operation.counted->restart(operation.job);
    operation.multi_phase = operation.counted.get();
  }
  if (operation.on_device)
    comm.device_calls_.prepare(operation, operation.arguments, operation.device_options, false, nullptr);
  operation.started = true;
  comm.resources.observer->issue(operation);
  comm.queue_.issue(call);
  if (operation.finished()) return;
  comm.progress_thread_.attach();
  comm.progress_thread_.notify();
}

bool PersistentCall::State::wait_until(Deadline until) {
  if (owner == nullptr) return true;
  return messages != nullptr ? owner->messages.wait_until(messages->operations(), until)
                             : owner->wait_until(*this, until);
}

bool PersistentCall::State::test() {
  if (owner == nullptr) return true;
  return messages != nullptr ? owner->messages.test(messages->operations()) : owner->test(*this);
}

std::exception_ptr PersistentCall::State::take_error() noexcept {
  std::exception_ptr first = std::exchange(error, nullptr);
  if (messages != nullptr)
    for (MessageOperation* const one : messages->operations())
      if (std::exception_ptr next = std::exchange(one->error, nullptr); first == nullptr) first = std::move(next);
  return first;
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
    PersistentCall old(std::move(*this));  // the destructor of `old` waits for the operation of this handle
    state_ = std::move(other.state_);
  }
  return *this;
}

PersistentCall::~PersistentCall() {
  if (state_ == nullptr) return;
  for (Backoff backoff; state_->started; backoff.wait()) {
    try {
      wait();
    } catch (const std::exception&) {  // a destructor must not throw; callers that need the error call wait()
    }
    // The operation is unfinished if another thread is in a call of the communicator. The buffers are still in use.
    if (state_->owner == nullptr || state_->owner->inherited()) break;
  }
  state_->leave_owner();
}

void PersistentCall::start() {
  if (state_ == nullptr) throw Error(Errc::invalid_argument, "start: this object is no persistent call");
  if (state_->owner == nullptr)
    refuse_call(Errc::invalid_argument, state_->call_name(), "the communicator of this persistent call was destroyed",
                kNoRank);
  State::start(state_);
}

void PersistentCall::end() {
  state_->started = false;
  if (const std::exception_ptr error = state_->take_error()) std::rethrow_exception(error);
}

bool PersistentCall::test() {
  if (state_ == nullptr || !state_->started) return true;
  if (!state_->test()) return false;
  end();
  return true;
}

void PersistentCall::wait() {
  if (state_ == nullptr || !state_->started) return;
  state_->wait_until(Deadline::never());
  end();
}

bool PersistentCall::wait_for(std::chrono::nanoseconds timeout) {
  if (state_ == nullptr || !state_->started) return true;
  if (!state_->wait_until(Deadline::in(timeout))) return false;
  end();
  return true;
}

Rank PersistentCall::source() const noexcept {
  if (state_ != nullptr && state_->messages != nullptr)
    for (const MessageOperation* const one : state_->messages->operations())
      if (!one->call.sends()) return one->source;
  return kNoRank;
}

// ---- the functions that make one ----

PersistentCall Communicator::persistent_all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                                                   const Options& options) {
  return PersistentCall::State::make(*impl_, reduction_of(Collective::all_reduce, input, output, op), options);
}
PersistentCall Communicator::persistent_all_reduce(Buffer data, ReduceOp op, const Options& options) {
  return persistent_all_reduce(data, data, op, options);
}

PersistentCall Communicator::persistent_reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                                       const Options& options) {
  return PersistentCall::State::make(*impl_, reduction_of(Collective::reduce_scatter, input, output, op), options);
}

PersistentCall Communicator::persistent_reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts,
                                                         ReduceOp op, const Options& options) {
  return PersistentCall::State::make(*impl_, reduce_scatter_v_of(input, output, parts, op), options);
}

PersistentCall Communicator::persistent_all_gather(ConstBuffer input, Buffer output, const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::all_gather, input, output), options);
}

PersistentCall Communicator::persistent_all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts,
                                                     const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::all_gather, input, output, parts), options);
}

PersistentCall Communicator::persistent_broadcast(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::broadcast, input, output, root), options);
}
PersistentCall Communicator::persistent_broadcast(Buffer data, Rank root, const Options& options) {
  return persistent_broadcast(data, data, root, options);
}

PersistentCall Communicator::persistent_reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root,
                                               const Options& options) {
  return PersistentCall::State::make(*impl_, reduction_of(Collective::reduce, input, output, op, root), options);
}

PersistentCall Communicator::persistent_all_to_all(ConstBuffer input, Buffer output, const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::all_to_all, input, output), options);
}

PersistentCall Communicator::persistent_all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                                     const PartLayout& output_parts, const Options& options) {
  return PersistentCall::State::make(*impl_, all_to_all_v_of(input, input_parts, output, output_parts), options);
}

PersistentCall Communicator::persistent_gather(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::gather, input, output, root), options);
}

PersistentCall Communicator::persistent_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                                 const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::gather, input, output, parts, root), options);
}

PersistentCall Communicator::persistent_scatter(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::scatter, input, output, root), options);
}

PersistentCall Communicator::persistent_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                                  const Options& options) {
  return PersistentCall::State::make(*impl_, call_of(Collective::scatter, input, output, parts, root), options);
}

PersistentCall Communicator::persistent_scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return PersistentCall::State::make(*impl_, reduction_of(Collective::scan, input, output, op), options);
}

PersistentCall Communicator::persistent_exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op,
                                                       const Options& options) {
  return PersistentCall::State::make(*impl_, reduction_of(Collective::exclusive_scan, input, output, op), options);
}

PersistentCall Communicator::persistent_barrier(const Options& options) {
  return PersistentCall::State::make(*impl_, {.collective = Collective::barrier}, options);
}

PersistentCall Communicator::persistent_send(ConstBuffer data, Rank to, int tag, const Options& options) {
  impl_->check_process("send");
  return PersistentCall::State::make(*impl_, "send",
                                     {impl_->messages.check(MessageCall::send(data, to, tag), options)});
}

PersistentCall Communicator::persistent_recv(Buffer data, Rank from, int tag, const Options& options) {
  impl_->check_process("recv");
  return PersistentCall::State::make(*impl_, "recv",
                                     {impl_->messages.check(MessageCall::receive(data, from, tag), options)});
}

PersistentCall Communicator::persistent_sendrecv(ConstBuffer input, Rank to, Buffer output, Rank from, int tag,
                                                 const Options& options) {
  impl_->check_process("sendrecv");
  const auto [send, receive] = impl_->messages.check_exchange(MessageCall::send(input, to, tag),
                                                              MessageCall::receive(output, from, tag), options);
  return PersistentCall::State::make(*impl_, "sendrecv", {receive, send});
}

}  // namespace collectives
