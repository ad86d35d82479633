// Packs the input buffers of a call into one contiguous vector, and unpacks its result into the output buffers.
//
// `vector` is the address of element 0. A call works on the vector in place. In an all-gather or a reduce-scatter, this
// rank's buffer is only its part of the vector.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "device/path_executor.hpp"

namespace collectives {

/// Copies the contribution of this rank to its place in the vector.
void pack_input(Device& device, const DeviceCall& call, Rank rank, std::byte* vector, Device::Stream stream);
/// Copies the elements that this rank receives to the caller's buffers. `coded`: the values have been rounded by a
/// codec.
void unpack_output(Device& device, const DeviceCall& call, Rank rank, const std::byte* vector, bool coded,
                   Device::Stream stream);

}  // namespace collectives
