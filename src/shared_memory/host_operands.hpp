// Operands of a collective between ranks of a host: this rank's buffers, type and op. Function tag_matches() checks
// that a peer performs the same call.
//
// When a rank publishes data for a collective, it adds a tag to the data. A tag holds the number of the collective and
// a hash of the call's signature (the arguments on which ranks must agree). A rank checks the tag before it uses the
// data of a peer. Price of tags: a few stores per call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"

namespace collectives {

/// Operands of one collective. `source` and `destination` are the addresses of element 0 of the vector. If a buffer
/// holds only a later part of the vector, element 0 would lie before the buffer.
struct HostOperands {
  const std::byte* source = nullptr;  ///< this rank's values
  std::byte* destination = nullptr;   ///< memory for this rank's results
  DataType type = DataType::f32;
  ReduceOp op;
  int finish_ranks = 0;   ///< number of ranks by which fold() divides the sum of an average; 0: its results are partial
  bool unreduced = true;  ///< whether the values are contributions of one rank each, not partial results
  std::uint64_t tag = 0;
  /// Number that identifies task and operands, except the tag. A protocol may prepare itself once for all collectives
  /// with an equal number. 0: the protocol prepares itself for every collective.
  std::uint64_t known_as = 0;
};

/// C++ exception inside the library, thrown if a tag shows that a peer performs another call. The communicator converts
/// the exception to a complete Error.
struct TagMismatch {
  Rank peer;  ///< local rank on the host, or rank of the communicator, depending on the function
};

/// Returns the address `index` elements after `base`. Computes with integers, because `base` may lie outside its
/// buffer.
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
