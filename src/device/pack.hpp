// The vector of a call on device memory as one stretch elsewhere, wherever its parts and tensors are: element 0 at
// `vector`, in place.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "device/path_executor.hpp"

namespace collectives {

/// Copies what this rank contributes to its place there.
void pack_input(Device& device, const DeviceCall& call, Rank rank, std::byte* vector, Device::Stream stream);
/// Copies what this rank receives to the caller's buffers. `coded`: values have been rounded on their way.
void unpack_output(Device& device, const DeviceCall& call, Rank rank, const std::byte* vector, bool coded,
                   Device::Stream stream);

}  // namespace collectives
