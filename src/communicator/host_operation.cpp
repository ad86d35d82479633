// Implementation of describe() and compress(), which prepare an operation on host memory.
//
// The function describe() translates the arguments of a call into a Job: the work that the executor performs. The
// function compress() begins a call with a top-k compressor. If the plan is sparse, compress() selects the k elements
// to send. If the plan sends the whole vector, compress() adds the elements that earlier calls did not send to the
// input.
#include "communicator/host_operation.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"
#include "core/collective.hpp"

namespace collectives {
namespace {

/// Returns the address at which element 0 of the vector would lie, if the buffer at `data` holds the elements from
/// `first` on. The executor adds the position of an element to this address. The sum always lies in the buffer.
template <class Byte, class Void>
Byte* from_element(Void* data, std::size_t first, std::size_t element_bytes) {
  return reinterpret_cast<Byte*>(reinterpret_cast<std::uintptr_t>(data) - first * element_bytes);
}

}  // namespace

void describe_buffers(Operation& operation, const Call& call, const PlannedCall& planned,
                      const CommunicatorResources& resources) {
  Job& job = operation.job;
  const std::size_t element = element_bytes_of(job.type, job.op);
  const std::size_t mine = first_of(planned.parts, resources.rank());
  const bool part_in = has_part_as_input(call.collective), part_out = has_part_as_output(call.collective);
  job.input = from_element<const std::byte>(call.input.data, part_in ? mine : 0, element);
  job.output = from_element<std::byte>(call.output.data, part_out ? mine : 0, element);
  job.host.source = job.input;
  job.host.destination = job.output;
  job.host.known_as = 0;  // a number belongs to one pair of buffers
}

void describe(Operation& operation, const Call& call, const Options& options,
              const std::shared_ptr<const PlannedCall>& planned, const CommunicatorResources& resources) {
  operation.queue_again();
  operation.name.assign(options.name);
  operation.group_names.assign(call.names);
  const std::string_view names = operation.names();
  operation.hash = planned->hash + (names.empty() ? 0 : hash_bytes(names.data(), names.size()));
  operation.has_details = !names.empty() || !planned->details.empty();
  operation.refused = false;
  operation.timeout = timeout_of(options, resources.settings);
  operation.error = nullptr;
  operation.multi_phase = nullptr;
  operation.on_device = false;

  Job& job = operation.job;
  job.plan = &planned->plan;
  if (!planned->single_step) job.args = args_of(*planned);
  job.op = call.op;
  job.type = planned->signature.type;
  job.input_stream = nullptr;
  // The stored plan may come from an earlier call with another codec object of the same name.
  job.codec = planned->plan.coded ? codec_of(options.wire, call, resources.rank()) : nullptr;
  job.single_step = planned->single_step ? &*planned->single_step : nullptr;
  if (job.single_step != nullptr)
    job.host = {.type = job.type,
                .op = job.op,
                .finish_ranks =
                    job.single_step->finish ? finish_ranks_of(call.collective, resources.rank(), resources.size()) : 0};
  describe_buffers(operation, call, *planned, resources);
  if (call.has_counts && has_local_counts(call.collective)) {
    if (operation.counted == nullptr)
      operation.counted =
          std::make_unique<CountedExchange>(*resources.view, resources.context.topology, resources.context.tuning);
    operation.counted->start(call, job.type, job);
    operation.multi_phase = operation.counted.get();
  }
  if (operation.call != planned) operation.call = planned;
}

bool compress(Operation& operation, const CommunicatorResources& resources) {
  const PlannedCall& planned = *operation.call;
  const int size = resources.size();
  const CommunicatorContext& context = resources.context;
  TopKOperation& top_k = static_cast<TopKOperation&>(*operation.multi_phase);
  // The call sends its elements in rounds. Rounds overlap only if all messages go to other hosts. Reason: a round in
  // flight needs a frame, the memory of a transport for one message, and ranks of one host have too few frames.
  const bool all_on_the_wire =
      planned.sparse->in_hosts || context.topology.hosts.size() == static_cast<std::size_t>(size);
  const std::size_t rounds_in_flight = all_on_the_wire ? std::max<std::size_t>(context.tuning.wire_frames, 2) - 1 : 1;
  const std::size_t bytes = planned.signature.count * sizeof(float);
  const TopKOperation::Call sparse{
      .plan = &*planned.sparse,
      .view = resources.view.get(),
      .tuning = &context.tuning,
      .rounds_in_flight = rounds_in_flight,
      .input = reinterpret_cast<const float*>(operation.job.input),
      .output = reinterpret_cast<float*>(operation.job.output),
      .divisor = operation.job.op.kind() == ReduceOp::Kind::average ? static_cast<float>(size) : 1.0F,
      .dense_bytes = 2 * bytes / static_cast<std::size_t>(size) * static_cast<std::size_t>(size - 1)};
  try {
    if (planned.sparse->sparse) {
      top_k.begin(sparse);
      return top_k.next(operation.job);
    } else {
      operation.job.input = reinterpret_cast<const std::byte*>(top_k.dense_input(sparse));
      operation.job.host.source = operation.job.input;
    }
  } catch (...) {  // out of memory
    std::exchange(operation.multi_phase, nullptr)->abandon();
    throw;
  }
  return true;
}

}  // namespace collectives
