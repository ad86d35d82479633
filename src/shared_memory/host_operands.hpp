// Operands of an intra-host collective on one rank, and the check that a peer is in the same call.
//
// Each line, chunk count and buffer record carries a tag: the number of the collective and a hash of the call's
// signature. Data of a mismatched call is refused before it is used. Price: a few stores per call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"

namespace collectives {

/// Addresses are those of element 0 of the vector, as if a buffer held the whole vector.
struct HostOperands {
  const std::byte* source = nullptr;  ///< this rank's values
  std::byte* destination = nullptr;   ///< place of the results
  DataType type = DataType::f32;
  ReduceOp op;
  int finish_ranks = 0;   ///< see fold()
  bool unreduced = true;  ///< the values are contributions, not partial results
  std::uint64_t tag = 0;
  /// Identifies the task and all operands but the tag. Preparations for an equal value are valid again. 0: none are
  /// kept.
  std::uint64_t known_as = 0;
};

/// Thrown inside the library if a tag shows a mismatched call. The communicator turns it into the full Error.
struct TagMismatch {
  Rank peer;  ///< local rank or rank, as the thrower counts
};

/// Returns `base` moved by whole elements. Uses integers, because `base` may point outside its buffer.
template <class Byte>
Byte* element_at(Byte* base, std::size_t index, std::size_t element_bytes) {
  return reinterpret_cast<Byte*>(reinterpret_cast<std::uintptr_t>(base) + index * element_bytes);
}

/// Compares a tag that was read with the expected one. Returns true if they are equal, false if the data is not yet
/// there. Throws TagMismatch{peer} if the numbers are equal but the hashes differ.
inline bool tag_matches(std::uint64_t seen, std::uint64_t wanted, int peer) {
  if (seen == wanted) return true;
  if (static_cast<std::uint32_t>(seen) == static_cast<std::uint32_t>(wanted)) throw TagMismatch{peer};
  return false;
}

}  // namespace collectives
