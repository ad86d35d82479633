// The vector of a call on device memory as one stretch elsewhere, wherever its parts and tensors are: element 0 at
// `vector`, in place.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "device/way.hpp"

namespace collectives {

/// Copies what this rank contributes to its place there.
void copy_there(Device& device, const DeviceCall& call, Rank rank, std::byte* vector, Device::Stream stream);
/// Copies what this rank receives to the caller's buffers. `coded`: values have been rounded on their way.
void copy_back(Device& device, const DeviceCall& call, Rank rank, const std::byte* vector, bool coded,
               Device::Stream stream);

}  // namespace collectives
