// Implementation of NcclPath, which performs calls by NCCL. NCCL is NVIDIA's library for collectives between GPUs.
//
// The path starts an operation by calls of NcclCollective, which put work into a stream, a queue of work for the GPU.
// The next operation can then begin while the GPU still works on earlier operations. The path therefore keeps a list of
// operations whose work is in the stream. When the GPU has performed the work of the oldest operation, retire() removes
// this operation from the list.
#include "device/nccl_path.hpp"

#include <new>
#include <utility>

#include "execution/job.hpp"
#include "planning/device_path_choice.hpp"
#include "planning/planned_call.hpp"

namespace collectives {

NcclPath::NcclPath(Device& device, std::unique_ptr<NcclComm> nccl_comm, int size, Rank self)
    : device_(device),
      size_(size),
      self_(self),
      own_(device),
      nccl_collective_(device, std::move(nccl_comm), size, self),
      registry_(device, nccl_collective_.nccl_comm()) {}

NcclPath::~NcclPath() {
  for (const Device::Event event : in_flight_) device_.end_event(event);
  for (const Device::Event event : events_) device_.end_event(event);
}

bool NcclPath::takes_memory(const DeviceCall& call, const PlannedCall& planned) noexcept {
  if (planned.plan.partial_sums != PartialSums::forbidden) return false;
  try {
    describe(call, planned);
    return nccl_collective_.takes_memory(calls_);
  } catch (const std::bad_alloc&) {  // start() reports the failure.
    return true;
  }
}

void NcclPath::start(const DeviceCall& call, const PlannedCall& planned, Job&) {
  call_ = &call;
  if (call.stream) device_.wait(stream_, call.ready);
  describe(call, planned);
  nccl_collective_.start(calls_);
}

void NcclPath::describe(const DeviceCall& device_call, const PlannedCall& planned) {
  calls_.clear();
  const Call& call = device_call.call;
  const Request& request = planned.request;
  const auto p = static_cast<std::size_t>(size_);
  const bool by_part = call.collective == Collective::reduce_scatter || call.collective == Collective::all_gather;
  offsets_.assign(1, 0);
  for (std::size_t rank = 0; by_part && rank < p; ++rank)
    offsets_.push_back(offsets_.back() + (request.counts.empty() ? request.count / p : request.counts[rank]));
  const auto add = [&](const void* input, void* output, std::size_t count) {
    // Computes the address of element 0 for a buffer that begins with this rank's part. Only elements of the part are
    // accessed.
    const auto whole = [&](const void* data, bool part) {
      const std::size_t before = part ? offsets_[static_cast<std::size_t>(self_)] * size_of(request.type) : 0;
      return reinterpret_cast<std::uintptr_t>(data) - before;
    };
    calls_.push_back(
        {.collective = call.collective,
         .input = reinterpret_cast<const std::byte*>(whole(input, call.collective == Collective::all_gather)),
         .output = reinterpret_cast<std::byte*>(whole(output, call.collective == Collective::reduce_scatter)),
         .parts = by_part ? Parts::listed(offsets_.data(), size_) : Parts::equal({0, count}, 1),
         .type = request.type,
         .op = call.op,
         .root = call.root,
         .unsummed = planned.plan.partial_sums == PartialSums::forbidden,
         .wire = planned.plan.coded ? nccl_wire_type(request) : request.type,
         .stream = stream_});
  };
  for (const Tensor& tensor : device_call.tensors)
    if (tensor.input.count > 0) add(tensor.input.data, tensor.output.data, tensor.input.count);
  if (device_call.tensors.empty()) add(call.input.data, call.output.data, request.count);
}

PathExecutor::PathState NcclPath::progress() {
  if (!nccl_collective_.progress()) return PathState::gpu;
  if (events_.empty()) events_.push_back(device_.new_event());
  const Device::Event end = events_.back();
  device_.record(end, stream_);
  if (call_->stream && call_->ends_in_stream) device_.wait(*call_->stream, end);
  events_.pop_back();
  in_flight_.push_back(end);
  call_ = nullptr;
  ++moves_;
  return PathState::in_flight;
}

bool NcclPath::retire_oldest() {
  nccl_collective_.nccl_comm().ready();  // Throws errors that have occurred in the stream.
  if (!device_.reached(in_flight_.front())) return false;
  events_.push_back(in_flight_.front());
  in_flight_.pop_front();
  ++moves_;
  return true;
}

void NcclPath::abandon() noexcept { nccl_collective_.nccl_comm().stop(); }

}  // namespace collectives
