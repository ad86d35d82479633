// Implementation of packing. A call on GPU memory may have several tensors, but most device paths need one contiguous
// vector. To pack is to copy input tensors into this vector. To unpack is to copy results to the output tensors.
#include "device/pack.hpp"

#include "core/collective.hpp"

namespace collectives {

void pack_input(Device& device, const DeviceCall& device_call, Rank rank, std::byte* vector, Device::Stream stream) {
  const Call& call = device_call.call;
  std::size_t at = has_part_as_input(call.collective) ? device_call.mine : 0;
  const auto copy = [&](const ConstBuffer& from) {
    if (from.count > 0) device.copy(vector + at * size_of(from.type), from.data, from.bytes(), stream);
    at += from.count;
  };
  for (const Tensor& tensor : device_call.tensors) copy(tensor.input);
  if (device_call.tensors.empty() && sides_of(call, rank).input) copy(call.input);
}

void unpack_output(Device& device, const DeviceCall& device_call, Rank rank, const std::byte* vector, bool coded,
                   Device::Stream stream) {
  const Call& call = device_call.call;
  std::size_t at = has_part_as_output(call.collective) ? device_call.mine : 0;
  const auto copy = [&](const Buffer& to) {
    if (to.count > 0) device.copy(to.data, vector + at * size_of(to.type), to.bytes(), stream);
    at += to.count;
  };
  for (const Tensor& tensor : device_call.tensors) copy(tensor.output);
  // The root of a broadcast in place already has the result, unless a codec has rounded it.
  const bool in_place =
      !coded && call.collective == Collective::broadcast && rank == call.root && call.input.data == call.output.data;
  if (device_call.tensors.empty() && sides_of(call, rank).output && !in_place) copy(call.output);
}

}  // namespace collectives
