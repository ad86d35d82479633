// Operands of a collective between ranks of a host: this rank's buffers, type and op. Also the check that a peer
// performs the same call.
//
// All that ranks publish in shared memory carries a tag: the number of the collective and a hash of the call's
// signature. A rank checks the tag before it uses the data of a peer. Price: a few stores per call.
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
  int finish_ranks = 0;   ///< number of ranks by which fold() finishes results, such as averages; 0: it does not
  bool unreduced = true;  ///< whether the values are contributions of one rank each, not partial results
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
