// A collective call as the public functions pass it on, checked and signed before anything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"
#include "core/signature.hpp"

namespace collectives {

/// One of several that travel together.
struct Tensor {
  ConstBuffer input;
  Buffer output;
};

struct Call {
  Collective collective = Collective::barrier;
  ConstBuffer input = {};
  Buffer output = {};
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::span<const std::size_t> counts = {};
  bool has_counts = false;
  std::uint64_t layout = 0;  ///< of a fused group: hash of the counts of its tensors
  Memory memory = Memory::host;
  /// Of a fused group in device memory: its tensors, side by side the vector. `input` and `output` say then only how
  /// long that is.
  std::span<const Tensor> tensors = {};
};

/// Which of the buffers of a call a rank has; the others stand for nothing.
struct Sides {
  bool input = false, output = false;
};
Sides sides_of(const Call& call, Rank rank) noexcept;

/// Throws Error{invalid_argument} for a collective, type or op that no enumerator names.
void check_vocabulary(const Call& call, Rank rank);

/// Throws Error{invalid_argument} when rank `rank` of `size` ranks may not call so: unknown type or op, null with
/// elements, counts that do not fit, types that differ, an op the type has not, a root out of range, overlap without
/// being in place, overflow.
void check_arguments(const Call& call, Rank rank, int size);

/// The codec of `wire`, null where values travel as they are. Throws Error{invalid_argument} for a type that nothing
/// travels as.
const Codec* codec_of(const WireFormat& wire, const Call& call, Rank rank);

/// Throws Error{invalid_argument} for a call that top-k has no meaning for.
void check_compressor(const Call& call, std::string_view name, Rank rank);

/// What the ranks compare. Throws Error{invalid_argument} for an unknown backend, listing the known ones.
Signature sign(const Call& call, Rank rank, std::string_view backend, bool deterministic, const WireName& wire,
               bool force);

}  // namespace collectives
