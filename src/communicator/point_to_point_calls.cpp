// Implementation of PointToPointCalls, which checks and performs sends and receives between two ranks.
//
// A call first checks its arguments. The engine (PointToPoint) then moves the data. Each asynchronous call has a state
// that the engine updates and to which the program's Work refers. The last section of this file has the public
// functions of Communicator, such as send() and recv().
#include "communicator/point_to_point_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "collectives/plan.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/test_backoff.hpp"
#include "core/call.hpp"
#include "device/placement.hpp"

namespace collectives {

PointToPointCalls::PointToPointCalls(Communicator::Impl& owner, const CommunicatorResources& resources)
    : owner_(owner),
      resources_(resources),
      engine_({.view = *resources.view,
               .arena = *resources.context.arena,
               .wire = resources.context.messages.get(),
               .failure_detector = *resources.failure_detector,
               .recorder = resources.observer->recorder_of_messages(),
               .write_out =
                   [&resources](std::string_view why) {
                     resources.observer->write_failure(why, *resources.failure_detector);
                   },
               .control = resources.context.wire != nullptr ? &resources.mutex : nullptr,
               .threads = resources.context.threads,
               .kernel = resources.context.kernel_copy_allowed,
               .oversubscribed = resources.context.oversubscribed,
               .has_progress_thread = resources.progress_thread,
               .stall_report = resources.settings.stall_report}) {}

// ---- checks ----

void PointToPointCalls::refuse(Errc code, const MessageCall& call, std::string_view why) const {
  throw Error(code, fmt::format("{}: {}", call.name(), why), resources_.rank(), kNoRank, std::string(call.name()));
}

CheckedMessage PointToPointCalls::check(const MessageCall& call, const Options& options) const {
  const int ranks = resources_.size();
  const bool any = !call.sends() && call.peer == any_source;
  if (static_cast<std::size_t>(call.type) >= std::size(kDataTypes))
    refuse(Errc::invalid_argument, call, fmt::format("no such type: {}", static_cast<int>(call.type)));
  if (call.sends() && call.peer == any_source)
    refuse(Errc::invalid_argument, call, "any_source is a source of receives: a send names its receiver");
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

/// Throws Error{unsupported} if the buffer is in GPU memory.
void PointToPointCalls::check_memory(const MessageCall& call) const {
  const CommunicatorContext& context = resources_.context;
  const Call as_collective{.collective = Collective::broadcast,
                           .input = {call.data, call.count, call.type},
                           .output = {call.data, call.count, call.type},
                           .root = resources_.rank()};
  if (memory_of(*context.device, as_collective, {}, context.topology.gpus, resources_.rank()) == Memory::device)
    refuse(Errc::unsupported, call, "the buffer is in GPU memory; point-to-point calls take host memory");
}

std::array<CheckedMessage, 2> PointToPointCalls::check_exchange(const MessageCall& send, const MessageCall& receive,
                                                                const Options& options) const {
  MessageCall to = send, from = receive;
  to.in_sendrecv = from.in_sendrecv = true;
  const std::array<CheckedMessage, 2> calls{check(to, options), check(from, options)};
  const std::byte *const a = send.data, *const b = receive.data;
  if (send.count > 0 && receive.count > 0 && a < b + receive.bytes() && b < a + send.bytes())
    throw Error(Errc::invalid_argument, "sendrecv: input and output overlap", resources_.rank(), kNoRank, "sendrecv");
  return calls;
}

// ---- calls ----

Rank PointToPointCalls::run(const MessageCall& call, const Options& options) {
  owner_.check_process(call.name());
  const OneCall::Entered entered(one_call_, resources_.rank(), call.name());
  MessageOperation operation;
  operation.begin(check(call, options));
  MessageOperation* const one = &operation;
  engine_.run({&one, 1});
  if (!engine_.is_idle()) owner_.progress_thread_.notify_of_message();
  return operation.source;
}

Rank PointToPointCalls::exchange(const MessageCall& send, const MessageCall& receive, const Options& options) {
  owner_.check_process("sendrecv");
  const OneCall::Entered entered(one_call_, resources_.rank(), "sendrecv");
  MessageOperation sending, receiving;
  const auto calls = check_exchange(send, receive, options);
  sending.begin(calls[0]);
  receiving.begin(calls[1]);
  MessageOperation* const both[] = {&sending, &receiving};
  engine_.run(both);
  if (!engine_.is_idle()) owner_.progress_thread_.notify_of_message();
  return receiving.source;
}

std::shared_ptr<Work::State> PointToPointCalls::state_for(const CheckedMessage& call) {
  std::shared_ptr<Work::State> state = pool_.unused();
  state->error = nullptr;
  state->is_message = true;
  state->owner = &owner_;
  state->phase.store(Operation::Phase::running, std::memory_order_relaxed);
  state->message.begin(call);
  return state;
}

PointToPointCalls::States& PointToPointCalls::start_group(std::span<const CheckedMessage> calls) {
  const OneCall::Entered entered(one_call_, resources_.rank(), "group");
  return start_together(calls);
}

PointToPointCalls::States& PointToPointCalls::start_together(std::span<const CheckedMessage> calls) {
  started_.clear();
  starting_.clear();
  for (const CheckedMessage& one : calls) started_.push_back(state_for(one));
  for (const bool sends : {false, true})
    for (const auto& state : started_)
      if (state->message.call.sends() == sends) starting_.push_back(&state->message);
  engine_.start(starting_);
  for (const auto& state : started_) state->conclude_message();
  owner_.progress_thread_.notify_of_message();
  return started_;
}

Work PointToPointCalls::issue(const MessageCall& call, const Options& options) {
  owner_.check_process(call.name());
  const OneCall::Entered entered(one_call_, resources_.rank(), call.name());
  const CheckedMessage checked = check(call, options);
  return Work(std::move(start_together({&checked, 1}).front()));
}

Work PointToPointCalls::issue_exchange(const MessageCall& send, const MessageCall& receive, const Options& options) {
  owner_.check_process("sendrecv");
  const OneCall::Entered entered(one_call_, resources_.rank(), "sendrecv");
  const auto calls = check_exchange(send, receive, options);
  std::shared_ptr<Work::State> both = pool_.unused();
  both->error = nullptr;
  both->is_message = false;
  both->owner = nullptr;
  both->phase.store(Operation::Phase::done, std::memory_order_relaxed);
  for (auto& state : start_together(calls)) both->members.push_back(Work(std::move(state)));
  return Work(std::move(both));
}

void PointToPointCalls::start(std::string_view name, std::span<const CheckedMessage> calls, Operations operations) {
  const OneCall::Entered entered(one_call_, resources_.rank(), name);
  for (std::size_t i = 0; i < calls.size(); ++i) operations[i]->begin(calls[i]);
  engine_.start(operations);
  owner_.progress_thread_.notify_of_message();
}

// ---- waits ----

bool PointToPointCalls::wait_until(Operations operations, Deadline until) {
  owner_.check_process("wait");
  const OneCall::Entered entered(one_call_, resources_.rank(), "wait");
  return std::ranges::all_of(operations, [&](MessageOperation* one) { return engine_.wait_until(*one, until); });
}

bool PointToPointCalls::test(Operations operations) {
  owner_.check_process("test");
  const auto all = [&](auto&& ended) { return std::ranges::all_of(operations, ended); };
  if (all([](const MessageOperation* one) { return one->ended(); })) return true;
  const OneCall::Entered entered(one_call_, resources_.rank(), "test");
  const std::uint64_t before = engine_.moves();
  const bool ended = all([&](MessageOperation* one) { return engine_.test(*one); });
  note_test(ended, engine_.moves() != before, resources_.context.oversubscribed);
  return ended;
}

bool PointToPointCalls::wait_until(Work::State& state, Deadline until) {
  MessageOperation* const one = &state.message;
  wait_until({&one, 1}, until);
  state.conclude_message();
  return state.finished();
}

bool PointToPointCalls::test(Work::State& state) {
  MessageOperation* const one = &state.message;
  test({&one, 1});
  state.conclude_message();
  return state.finished();
}

void PointToPointCalls::end() noexcept {
  engine_.end(resources_.leave_deadline());
  pool_.for_each([](Work::State& state) {
    state.conclude_message();
    state.owner = nullptr;
  });
}

// ---- Communicator ----

void Communicator::send(ConstBuffer data, Rank to, int tag, const Options& options) {
  impl_->messages.run(MessageCall::send(data, to, tag), options);
}
Work Communicator::send_async(ConstBuffer data, Rank to, int tag, const Options& options) {
  return impl_->messages.issue(MessageCall::send(data, to, tag), options);
}
Rank Communicator::recv(Buffer data, Rank from, int tag, const Options& options) {
  return impl_->messages.run(MessageCall::receive(data, from, tag), options);
}
Work Communicator::recv_async(Buffer data, Rank from, int tag, const Options& options) {
  return impl_->messages.issue(MessageCall::receive(data, from, tag), options);
}
Rank Communicator::sendrecv(ConstBuffer input, Rank to, Buffer output, Rank from, int tag, const Options& options) {
  return impl_->messages.exchange(MessageCall::send(input, to, tag), MessageCall::receive(output, from, tag), options);
}
Work Communicator::sendrecv_async(ConstBuffer input, Rank to, Buffer output, Rank from, int tag,
                                  const Options& options) {
  return impl_->messages.issue_exchange(MessageCall::send(input, to, tag), MessageCall::receive(output, from, tag),
                                        options);
}

}  // namespace collectives
