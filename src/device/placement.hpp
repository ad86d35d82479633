// memory_of(): determines whether the buffers of a call are in GPU memory or in CPU memory. It does so before anything
// is sent.
//
// If the communicator has a GPU, every call asks the driver about each buffer. Reason: an address may have been reused
// for other memory. The answer is part of the signature, which ranks compare. Ranks with different answers therefore
// get an error. Price: a query takes under a microsecond per buffer.
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
/// Throws Error{invalid_argument} for buffers of both kinds, a buffer or stream of another GPU, or a stream with CPU
/// memory. Throws Error{unsupported} for buffers in GPU memory if some rank of the communicator has no GPU, or if the
/// stream is being captured. Throws the errors of `device`.
Memory memory_of(const Device& device, const Call& call, std::optional<Device::Stream> stream,
                 const Topology::Gpus& gpus, Rank rank);

/// Throws Error{invalid_argument} if the range is not inside one allocation of `device`. The error names no rank and no
/// operation; the caller adds them. Throws the errors of `device`.
void check_range(const Device& device, const std::byte* data, std::size_t bytes);

/// Throws Error{invalid_argument} if a buffer is not aligned to its element size. GPUs access aligned elements only.
void check_alignment(const Call& call, Rank rank);

}  // namespace collectives
