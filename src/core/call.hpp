// Structure with the arguments of a collective call, and the functions that check these arguments. Each rank checks its
// call and computes the signature of the call before it sends anything. The signature holds the arguments that must be
// equal on all ranks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"
#include "core/signature.hpp"

namespace collectives {

/// One tensor of a fused group. A fused group performs the all-reduces of several tensors as one call.
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
  /// Lengths of the parts of a vector, by rank. Only a v-form has them, a call in which parts have different lengths.
  /// The vector is the input of reduce_scatter and scatter, and the output of all other collectives.
  std::span<const std::size_t> counts = {};
  std::span<const std::size_t> displacements =
      {};                                     ///< first elements of these parts; empty: the parts lie one after another
  PartLayout input_parts = {};                ///< parts of the input of a v-form of all_to_all
  bool has_counts = false;                    ///< whether the call is a v-form
  std::uint64_t layout = 0;                   ///< hash of the number and the lengths of a fused group's tensors
  std::span<const std::size_t> lengths = {};  ///< lengths of a fused group's tensors, for error texts
  std::string_view names = {};                ///< names of a fused group's tensors, if there are several
  bool split = false;                         ///< whether split() makes the call
  /// Number of an element type of another interface, such as MPI, that the library lacks. Only calls that do not reduce
  /// have one. Ranks compare this number. 0: the elements have the type of the buffers.
  std::uint64_t foreign_type = 0;
  Memory memory = Memory::host;
  /// Tensors of a fused group in device memory; empty for any other call. The vector of a fused group consists of its
  /// tensors, one after another. If this list is not empty, `input` and `output` hold only the length of the vector.
  std::span<const Tensor> tensors = {};
};

/// Returns whether two ops are equal. Tells a factor of -0 from 0, which give different bits, whereas == does not.
inline bool same_op(const ReduceOp& a, const ReduceOp& b) noexcept {
  return a.kind() == b.kind() && a.user_op() == b.user_op() &&
         std::bit_cast<std::uint64_t>(a.factor()) == std::bit_cast<std::uint64_t>(b.factor());
}

/// Buffers that a rank uses in a call. For example, only a reduce's root has an output. The library ignores buffers
/// that the rank does not use.
struct Sides {
  bool input = false, output = false;
};
Sides sides_of(const Call& call, Rank rank) noexcept;

/// Returns whether the call lists displacements, and its parts do not lie one after another from element 0 on.
bool is_displaced(const Call& call) noexcept;

/// Returns the number of elements of the whole vector of a call with checked arguments. It is the vector that all parts
/// make up together, or else the vector of one rank. Returns 0 if the ranks do not know all counts.
std::size_t whole_count(const Call& call, int size) noexcept;

/// Throws Error{invalid_argument} if the collective, a type or the op has a value outside its enumeration.
void check_vocabulary(const Call& call, Rank rank);

/// Throws Error{invalid_argument} if rank `rank` of `size` ranks passed invalid arguments. These are:
///
///   - an unknown type or op, or an op that the type does not support
///   - a null pointer with elements
///   - numbers of elements that do not match one another, or that overflow
///   - different types of input and output
///   - a root out of range
///   - parts that leave their buffer, and parts of an output that overlap
///   - buffers that overlap without being in place
void check_arguments(const Call& call, Rank rank, int size);

/// Maximum length of a tensor's name, in bytes. Ranks compare names, and error texts show them.
inline constexpr std::size_t kLongestName = 256;
/// Throws Error{invalid_argument} if the name of the tensor is longer than kLongestName.
void check_name(const Call& call, std::string_view name, Rank rank);

/// Returns the codec that `wire` selects. Returns null if values are sent unchanged, also if `wire` names the type of
/// the call. Throws Error{invalid_argument} if `wire` names another type that has no codec. Also throws if `wire`
/// selects a codec and the type of the call is not f32.
const Codec* codec_of(const WireFormat& wire, const Call& call, Rank rank);

/// Throws Error{invalid_argument} if the top-k compressor does not support the call. `name` is the tensor's name.
void check_compressor(const Call& call, std::string_view name, Rank rank);

/// Returns the signature of the call. Throws Error{invalid_argument} if `backend` is unknown. The error lists the known
/// backends.
Signature sign(const Call& call, Rank rank, int size, std::string_view backend, bool deterministic,
               const WireName& wire, bool force);

/// Returns the signature of a call that was refused. It identifies the function, and holds no other argument, so that
/// refusals of the same call are equal on all ranks.
Signature sign_refusal(const Call& call) noexcept;

}  // namespace collectives
