// Whose memory the buffers of a call are, asked before anything is sent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "collectives/topology.hpp"
#include "collectives/types.hpp"
#include "core/call.hpp"
#include "device/device.hpp"

namespace collectives {

/// Memory::device where the call's buffers are those of `device`; managed memory is, where a stream is given, and the
/// host's otherwise, as pinned memory is. A vector of no elements is the host's, whatever its address. Costs a question
/// to the driver for each buffer.
/// Throws Error{invalid_argument} for buffers of two kinds or of another GPU, for a stream of another GPU, and for one
/// with the host's memory; Error{unsupported} where a rank has no GPU, and for a stream that is being captured; what
/// `device` throws.
Memory memory_of(const Device& device, const Call& call, std::optional<Device::Stream> stream,
                 const Topology::Gpus& gpus, Rank rank);

/// Throws Error{invalid_argument}, without rank and operation, for a range of bytes that does not lie within one
/// allocation of `device`; what `device` throws.
void check_range(const Device& device, const std::byte* data, std::size_t bytes);

/// Throws Error{invalid_argument} for buffers whose elements do not lie at multiples of their size, where a GPU reads
/// and writes them.
void check_alignment(const Call& call, Rank rank);

}  // namespace collectives
