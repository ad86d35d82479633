// Packs the input buffers of a call on GPU memory into one contiguous vector. Unpacks the result into the output
// buffers.
//
// `vector`: the address of element 0 of the vector, on which the call works in place. In an all-gather or a gather, the
// input of a rank is only one part of the vector. In a reduce-scatter or a scatter, the output of a rank is only one
// part.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "device/path_executor.hpp"

namespace collectives {

/// Copies the input of this rank to its place in the vector.
void pack_input(Device& device, const DeviceCall& call, Rank rank, std::byte* vector, Device::Stream stream);
/// Copies the elements that this rank receives from the vector to its output buffers. `coded`: whether a codec has
/// rounded the values.
void unpack_output(Device& device, const DeviceCall& call, Rank rank, const std::byte* vector, bool coded,
                   Device::Stream stream);

}  // namespace collectives
