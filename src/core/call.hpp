// A collective call with the arguments of the public functions. It is checked and signed before anything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"
#include "core/signature.hpp"

namespace collectives {

/// One tensor of a fused group.
struct Tensor {
  ConstBuffer input;
  Buffer output;
};

/// Arguments of a collective call.
struct Call {
  Collective collective = Collective::barrier;
  ConstBuffer input = {};
  Buffer output = {};
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::span<const std::size_t> counts = {};
  bool has_counts = false;
  std::uint64_t layout = 0;  ///< hash of the counts of the tensors of a fused group
  Memory memory = Memory::host;
  /// Tensors of a fused group in device memory. The vector of the call consists of these tensors, one after the other.
  /// `input` and `output` then only hold its length.
  std::span<const Tensor> tensors = {};
};

/// Buffers of a call that a rank has. A buffer that is not set is ignored.
struct Sides {
  bool input = false, output = false;
};
Sides sides_of(const Call& call, Rank rank) noexcept;

/// Throws Error{invalid_argument} if the value of a collective, a type or an op is no enumerator.
void check_vocabulary(const Call& call, Rank rank);

/// Throws Error{invalid_argument} if rank `rank` of `size` ranks passed invalid arguments. These are:
///
///   - an unknown type or op, or an op that the type does not support
///   - a null pointer with elements
///   - counts that do not match, or that overflow
///   - different types of input and output
///   - a root out of range
///   - buffers that overlap without being in place
void check_arguments(const Call& call, Rank rank, int size);

/// Returns the codec of `wire`, or null if values are sent unchanged. Throws Error{invalid_argument} for a type in
/// which no value can be sent.
const Codec* codec_of(const WireFormat& wire, const Call& call, Rank rank);

/// Throws Error{invalid_argument} if top-k does not support the call.
void check_compressor(const Call& call, std::string_view name, Rank rank);

/// Returns the signature, which ranks compare. Throws Error{invalid_argument} for an unknown backend and lists the
/// known backends.
Signature sign(const Call& call, Rank rank, std::string_view backend, bool deterministic, const WireName& wire,
               bool force);

}  // namespace collectives
