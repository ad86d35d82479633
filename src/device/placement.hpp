// memory_of(): determines whether the buffers of a call are in GPU memory or in CPU memory. A call uses this function
// before it sends messages.
//
// If the communicator has a GPU, every call asks the driver about each buffer. The result of an earlier call cannot be
// reused, because another kind of memory may now have the same address. The answer is part of the signature, which
// ranks compare. If two ranks get different answers, the call therefore throws an error. Price: a query takes under a
// microsecond per buffer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "collectives/topology.hpp"
#include "collectives/types.hpp"
#include "core/call.hpp"
#include "device/device.hpp"

namespace collectives {

/// Returns Memory::device if the call's buffers are in memory of `device`, a GPU, and Memory::host if they are in CPU
/// memory. Managed memory counts as GPU memory if a stream is given, otherwise as CPU memory. Pinned memory counts as
/// CPU memory. A vector without elements counts as CPU memory, whatever its address.
///
/// Throws Error{invalid_argument} if a call mixes CPU and GPU memory, or if a buffer or the stream belongs to another
/// GPU. Also throws it if a stream is given for buffers in CPU memory. Throws Error{unsupported} for buffers in GPU
/// memory if some rank of the communicator has no GPU, or if the stream is being captured. Throws the errors of
/// `device`.
Memory memory_of(const Device& device, const Call& call, std::optional<Device::Stream> stream,
                 const Topology::Gpus& gpus, Rank rank);

/// Throws Error{invalid_argument} if the range is not inside one allocation of `device`. The error names no rank and no
/// operation; the caller adds them. Throws the errors of `device`.
void check_range(const Device& device, const std::byte* data, std::size_t bytes);

/// Throws Error{invalid_argument} if a buffer is not aligned to its element size. GPUs access aligned elements only.
void check_alignment(const Call& call, Rank rank);

}  // namespace collectives
