// Implementation of PointToPointCalls: the checks of point-to-point calls. This file also has the functions of
// Communicator and Communicator::Impl for these calls.
#include "communicator/point_to_point_calls.hpp"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "collectives/plan.hpp"
#include "communicator/communicator_impl.hpp"
#include "core/call.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

std::string_view name_of(const MessageCall& call) noexcept { return call.sends() ? "send" : "recv"; }

}  // namespace

PointToPointCalls::PointToPointCalls(const CommunicatorResources& resources, OperationQueue& queue)
    : resources_(resources),
      engine_({.view = *resources.view,
               .arena = *resources.context.arena,
               .wire = resources.context.messages.get(),
               .failure_detector = *resources.failure_detector,
               .recorder = resources.observer->recorder_of_messages(),
               .write_out =
                   [&resources](std::string_view why) {
                     resources.observer->fail_message(why, *resources.failure_detector);
                   },
               .control = resources.context.wire != nullptr ? &queue.mutex() : nullptr,
               .threads = resources.context.threads,
               .kernel = resources.context.kernel_copy_allowed,
               .oversubscribed = resources.context.oversubscribed,
               .has_progress_thread = resources.progress_thread,
               .stall_report = resources.settings.stall_report}) {}

// ---- checks ----

void PointToPointCalls::refuse(Errc code, const MessageCall& call, std::string_view why) const {
  throw Error(code, fmt::format("{}: {}", name_of(call), why), resources_.rank(), kNoRank, std::string(name_of(call)));
}

CheckedMessage PointToPointCalls::check(const MessageCall& call, const Options& options) const {
  const int ranks = resources_.size();
  const bool any = !call.sends() && call.peer == any_source;
  if (static_cast<std::size_t>(call.type) >= std::size(kDataTypes))
    refuse(Errc::invalid_argument, call, fmt::format("no such type: {}", static_cast<int>(call.type)));
  if (!any && (call.peer < 0 || call.peer >= ranks))
    refuse(Errc::invalid_argument, call, fmt::format("rank {} is not a rank of 0 to {}", call.peer, ranks - 1));
  if (call.tag < 0 || call.tag > kLargestTag)
    refuse(Errc::invalid_argument, call, fmt::format("tag {} is not in 0 to {}", call.tag, kLargestTag));
  if (call.count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(call.type))
    refuse(Errc::invalid_argument, call,
           fmt::format("{} elements of {} overflow the address space", call.count, to_string(call.type)));
  if (call.data == nullptr && call.count > 0)
    refuse(Errc::invalid_argument, call, fmt::format("the buffer is null with {} elements", call.count));
  check_options(call, options);
  if (resources_.context.device != nullptr) check_memory(call);
  return {call, timeout_of(options, resources_.settings)};
}

void PointToPointCalls::check_options(const MessageCall& call, const Options& options) const {
  if (options.name.size() > kLongestName)
    refuse(Errc::invalid_argument, call,
           fmt::format("the name has {} bytes, at most {} are allowed", options.name.size(), kLongestName));
  const auto unsupported = [&](std::string_view what) {
    refuse(Errc::unsupported, call,
           fmt::format("a point-to-point call has no {}; of the options, only timeout and name matter", what));
  };
  if (!options.backend.empty() && options.backend != "auto") unsupported("backend");
  if (options.compressor != nullptr) unsupported("compressor");
  if (options.stream) unsupported("stream");
  if (options.wire.codec() != nullptr || (options.wire.as_type() && options.wire.type() != call.type))
    unsupported("wire format");
}

/// Refuses a buffer in GPU memory.
void PointToPointCalls::check_memory(const MessageCall& call) const {
  const CommunicatorContext& context = resources_.context;
  const Call as_collective{.collective = Collective::broadcast,
                           .input = {call.data, call.count, call.type},
                           .output = {call.data, call.count, call.type},
                           .root = resources_.rank()};
  if (memory_of(*context.device, as_collective, {}, context.topology.gpus, resources_.rank()) == Memory::device)
    refuse(Errc::unsupported, call, "the buffer is in GPU memory; point-to-point calls take host memory");
}

void PointToPointCalls::check_apart(const MessageCall& send, const MessageCall& receive) const {
  const std::byte *const a = send.data, *const b = receive.data;
  if (send.count > 0 && receive.count > 0 && a < b + receive.bytes() && b < a + send.bytes())
    throw Error(Errc::invalid_argument, "sendrecv: input and output overlap", resources_.rank(), kNoRank, "sendrecv");
}

// ---- objects ----

std::shared_ptr<Work::State> PointToPointCalls::unused() {
  std::shared_ptr<Work::State> state = pool_.unused();
  state->error = nullptr;
  state->is_message = false;
  state->phase.store(Operation::Phase::done, std::memory_order_relaxed);
  return state;
}

void PointToPointCalls::start(Communicator::Impl& owner, std::span<const CheckedMessage> calls,
                              std::vector<std::shared_ptr<Work::State>>& states) {
  states.clear();
  for (const CheckedMessage& one : calls) {
    std::shared_ptr<Work::State> state = unused();
    state->is_message = true;
    state->owner = &owner;
    state->phase.store(Operation::Phase::running, std::memory_order_relaxed);
    state->message.begin(one);
    states.push_back(std::move(state));
  }
  starting_.clear();
  for (const bool sends : {false, true})
    for (const auto& state : states)
      if (state->message.call.sends() == sends) starting_.push_back(&state->message);
  engine_.start(starting_);
  for (const auto& state : states) state->conclude_message();
}

void PointToPointCalls::end() noexcept {
  engine_.end(resources_.leave_deadline());
  pool_.for_each([](Work::State& state) {
    state.conclude_message();
    state.owner = nullptr;
  });
}

// ---- Communicator::Impl ----

Rank Communicator::Impl::run_message(const MessageCall& call, const Options& options) {
  check_process(name_of(call));
  MessageOperation operation;
  operation.begin(messages_.check(call, options));
  messages_.engine().run(operation);
  if (!messages_.engine().is_idle()) progress_thread_.notify_of_message();
  return operation.source;
}

Rank Communicator::Impl::run_messages(const MessageCall& send, const MessageCall& receive, const Options& options) {
  check_process("sendrecv");
  MessageOperation sending, receiving;
  sending.begin(messages_.check(send, options));
  receiving.begin(messages_.check(receive, options));
  messages_.check_apart(send, receive);
  messages_.engine().run(sending, receiving);
  if (!messages_.engine().is_idle()) progress_thread_.notify_of_message();
  return receiving.source;
}

std::shared_ptr<Work::State> Communicator::Impl::issue_message(const MessageCall& call, const Options& options) {
  check_process(name_of(call));
  const CheckedMessage checked = messages_.check(call, options);
  return std::move(issue_messages(std::span(&checked, 1)).front());
}

std::vector<std::shared_ptr<Work::State>>& Communicator::Impl::issue_messages(std::span<const CheckedMessage> calls) {
  messages_.start(*this, calls, issued_messages_);
  progress_thread_.notify_of_message();
  return issued_messages_;
}

std::shared_ptr<Work::State> Communicator::Impl::issue_exchange(const MessageCall& send, const MessageCall& receive,
                                                                const Options& options) {
  check_process("sendrecv");
  const CheckedMessage calls[] = {messages_.check(send, options), messages_.check(receive, options)};
  messages_.check_apart(send, receive);
  std::shared_ptr<Work::State> both = messages_.unused();
  for (auto& state : issue_messages(calls)) both->members.push_back(Work(std::move(state)));
  return both;
}

// ---- Communicator ----

void Communicator::send(ConstBuffer data, Rank to, int tag, const Options& options) {
  impl_->run_message(MessageCall::send(data, to, tag), options);
}
Work Communicator::send_async(ConstBuffer data, Rank to, int tag, const Options& options) {
  return Work(impl_->issue_message(MessageCall::send(data, to, tag), options));
}
Rank Communicator::recv(Buffer data, Rank from, int tag, const Options& options) {
  return impl_->run_message(MessageCall::receive(data, from, tag), options);
}
Work Communicator::recv_async(Buffer data, Rank from, int tag, const Options& options) {
  return Work(impl_->issue_message(MessageCall::receive(data, from, tag), options));
}
Rank Communicator::sendrecv(ConstBuffer input, Rank to, Buffer output, Rank from, int tag, const Options& options) {
  return impl_->run_messages(MessageCall::send(input, to, tag), MessageCall::receive(output, from, tag), options);
}
Work Communicator::sendrecv_async(ConstBuffer input, Rank to, Buffer output, Rank from, int tag,
                                  const Options& options) {
  return Work(
      impl_->issue_exchange(MessageCall::send(input, to, tag), MessageCall::receive(output, from, tag), options));
}

}  // namespace collectives
