// Public functions of Communicator. Most of them only forward to Communicator::Impl, the private part of the class.
//
// A function for a collective, such as all_reduce(), first stores its arguments in a Call. The blocking form passes the
// Call to Impl::run(). The asynchronous form passes it to Impl::issue(), and returns a Work, the handle with which the
// program waits.
//
// Other files of this folder define the remaining public functions: split.cpp, create_group.cpp, part_calls.cpp,
// point_to_point_calls.cpp and persistent_call.cpp. The constructor is in tuning/construct.cpp.
#include "collectives/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"
#include "communicator/call_arguments.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/foreign_calls.hpp"

namespace collectives {

Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    const Communicator old(std::move(*this));
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Communicator::~Communicator() {
  if (impl_ != nullptr && impl_->inherited()) Impl::leave_to_parent(std::move(impl_));
}

Communicator Communicator::from_environment(const CommunicatorOptions& options) {
  std::chrono::nanoseconds timeout = options.timeout.count() != 0 ? options.timeout : std::chrono::minutes(10);
  try {
    timeout = resolve_options(options).timeout;
  } catch (const Error&) {  // the constructor below finds the same invalid option, and throws an error on all ranks
  }
  return Communicator(*bootstrap_from_environment(timeout), options);
}

Rank Communicator::rank() const noexcept { return impl_->resources.rank(); }
int Communicator::size() const noexcept { return impl_->resources.size(); }
const Topology& Communicator::topology() const noexcept { return impl_->resources.context.topology; }
const Tuning& Communicator::tuning() const noexcept { return impl_->resources.context.public_tuning; }
std::string_view Communicator::transport() const noexcept { return impl_->resources.transport_name; }
std::uint64_t Communicator::bytes_sent() const noexcept {
  const auto of_collectives = [](const CommunicatorResources& resources, const auto&) {
    return resources.bytes_sent();
  };
  return impl_->read(of_collectives) + impl_->messages.engine().sends().bytes_sent();
}
CodingReport Communicator::coding() const noexcept {
  return impl_->read([](const CommunicatorResources& resources, const auto&) { return resources.executor->coding(); });
}
std::uint64_t Communicator::bytes_sent_to_other_hosts() const noexcept {
  const auto of_collectives = [](const CommunicatorResources& resources, const auto&) {
    return resources.bytes_sent_to_other_hosts();
  };
  return impl_->read(of_collectives) + impl_->messages.engine().sends().bytes_to_other_hosts();
}

std::vector<OperationRecord> Communicator::recent_operations() const {
  return impl_->read([](const auto&, const OperationQueue& queue) { return queue.recent_operations(); });
}
std::vector<MessageRecord> Communicator::recent_messages() const {
  return impl_->messages.engine().recent(!impl_->inherited());  // a forked child has no other thread
}
Counters Communicator::counters() const {
  return impl_->read(
      [](const CommunicatorResources& resources, const auto&) { return resources.observer->recorder().counters(); });
}

void Communicator::all_reduce(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  if (options.compressor != nullptr) return all_reduce_async(input, output, op, options).wait();
  impl_->run(reduction_of(Collective::all_reduce, input, output, op), options);
}
void Communicator::all_reduce(Buffer data, ReduceOp op, const Options& options) { all_reduce(data, data, op, options); }
Work Communicator::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(reduction_of(Collective::all_reduce, input, output, op), options));
}
Work Communicator::all_reduce_async(Buffer data, ReduceOp op, const Options& options) {
  return all_reduce_async(data, data, op, options);
}

void Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run(reduction_of(Collective::reduce_scatter, input, output, op), options);
}
Work Communicator::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(reduction_of(Collective::reduce_scatter, input, output, op), options));
}
void Communicator::all_gather(ConstBuffer input, Buffer output, const Options& options) {
  impl_->run(call_of(Collective::all_gather, input, output), options);
}
Work Communicator::all_gather_async(ConstBuffer input, Buffer output, const Options& options) {
  return Work(impl_->issue(call_of(Collective::all_gather, input, output), options));
}
void Communicator::broadcast(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run(call_of(Collective::broadcast, input, output, root), options);
}
void Communicator::broadcast(Buffer data, Rank root, const Options& options) { broadcast(data, data, root, options); }
Work Communicator::broadcast_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(impl_->issue(call_of(Collective::broadcast, input, output, root), options));
}
Work Communicator::broadcast_async(Buffer data, Rank root, const Options& options) {
  return broadcast_async(data, data, root, options);
}

void Communicator::reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& options) {
  impl_->run(reduction_of(Collective::reduce, input, output, op, root), options);
}
Work Communicator::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& options) {
  return Work(impl_->issue(reduction_of(Collective::reduce, input, output, op, root), options));
}

void Communicator::barrier(const Options& options) { impl_->run({.collective = Collective::barrier}, options); }
Work Communicator::barrier_async(const Options& options) {
  return Work(impl_->issue({.collective = Collective::barrier}, options));
}

Group Communicator::group() { return Group(*this); }

SharedMemory Communicator::allocate_bytes(std::size_t bytes, std::size_t alignment) const {
  try {
    return SharedMemory(bytes, alignment);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rank {}: {}", rank(), error.what()), rank(), rank(), "allocate");
  }
}

DeviceMemory Communicator::allocate_bytes_on_device(std::size_t bytes) {
  impl_->check_process("allocate_on_device");
  return impl_->allocate_on_device(bytes);
}
DeviceMemory Communicator::register_memory(void* data, std::size_t bytes) {
  impl_->check_process("register_memory");
  return impl_->register_memory(static_cast<std::byte*>(data), bytes);
}

void Communicator::abort(std::string_view reason) noexcept {
  if (!impl_->inherited()) return impl_->resources.failure_detector->abort(reason);
  log_warning(rank(), "abort: this communicator belongs to process {}, from which this one was forked: it goes on",
              impl_->owner_process.process());
}

std::uint64_t CallRefusal::publish(Communicator& comm, std::string_view why) const noexcept {
  const Call call{.collective = collective, .has_counts = has_counts, .split = split};
  return comm.impl_->inherited() ? 0 : comm.impl_->preparation().refuse(call, why);
}

void ForeignCall::run(Communicator& comm, Call call, const Options& options) {
  comm.impl_->run(std::move(call), options);
}
Work ForeignCall::begin(Communicator& comm, Call call, const Options& options) {
  return Work(comm.impl_->issue(std::move(call), options));
}

void Communicator::progress() { impl_->progress(); }

Plan Communicator::plan(Collective collective, std::size_t count, DataType type, ReduceOp op,
                        const Options& options) const {
  return impl_->preparation().plan_of(collective, count, type, op, options)->plan;
}

std::string Communicator::explain(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                  const Options& options) const {
  const auto planned = impl_->preparation().plan_of(collective, count, type, op, options);
  Request request = planned->request;
  request.op = op;               // the plan may come from an earlier call with another object of the same user op
  if (request.codec != nullptr)  // the plan may come from an earlier call with another codec object
    request.codec = options.wire.codec() != nullptr ? options.wire.codec() : find_codec(to_string(options.wire.type()));
  const std::string text = collectives::explain(planned->plan, request, topology());
  return planned->sparse ? fmt::format("{}  compressor: {}\n", text, planned->sparse->reason) : text;
}

}  // namespace collectives
