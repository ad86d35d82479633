#include "device/side_by_side.hpp"

namespace collectives {

void copy_there(Device& device, const DeviceCall& there, Rank rank, std::byte* vector, Device::Stream stream) {
  const Call& call = there.call;
  std::size_t at = call.collective == Collective::all_gather ? there.mine : 0;
  const auto copy = [&](const ConstBuffer& from) {
    if (from.count > 0) device.copy(vector + at * size_of(from.type), from.data, from.bytes(), stream);
    at += from.count;
  };
  for (const Tensor& tensor : there.tensors) copy(tensor.input);
  if (there.tensors.empty() && sides_of(call, rank).input) copy(call.input);
}

void copy_back(Device& device, const DeviceCall& there, Rank rank, const std::byte* vector, bool coded,
               Device::Stream stream) {
  const Call& call = there.call;
  std::size_t at = call.collective == Collective::reduce_scatter ? there.mine : 0;
  const auto copy = [&](const Buffer& to) {
    if (to.count > 0) device.copy(to.data, vector + at * size_of(to.type), to.bytes(), stream);
    at += to.count;
  };
  for (const Tensor& tensor : there.tensors) copy(tensor.output);
  // What a root has broadcast in place is there, unless it has been rounded, as for the others.
  const bool is_there =
      !coded && call.collective == Collective::broadcast && rank == call.root && call.input.data == call.output.data;
  if (there.tensors.empty() && sides_of(call, rank).output && !is_there) copy(call.output);
}

}  // namespace collectives
