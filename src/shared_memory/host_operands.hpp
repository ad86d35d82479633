// What a host stage works on, on one rank, and what it throws when a peer works on something else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"

namespace collectives {

/// Addresses are of element 0 of the vector, as if the buffer held all of it.
struct HostOperands {
  const std::byte* own = nullptr;  ///< this rank's values
  std::byte* keep = nullptr;       ///< where results go
  DataType type = DataType::f32;
  ReduceOp op;
  int finish_ranks = 0;  ///< see fold()
  bool raw = true;       ///< own values are contributions
  std::uint64_t tag = 0;
  /// Stands for all of this but the tag, and for the task: what was found out about it once holds again. 0: nothing is
  /// to be remembered.
  std::uint64_t known_as = 0;
};

/// Thrown inside the library when a tag shows a mismatched call; the communicator turns it into the full Error.
struct TagMismatch {
  Rank peer;  ///< local rank or rank, as the thrower counts
};

/// `base` moved by whole elements, as an integer: it may point to where element 0 of the vector would be.
template <class Byte>
Byte* element_at(Byte* base, std::size_t index, std::size_t element_bytes) {
  return reinterpret_cast<Byte*>(reinterpret_cast<std::uintptr_t>(base) + index * element_bytes);
}

/// What was read where `wanted` is expected: true when it is there, false when not yet. Throws TagMismatch{peer} when
/// it is another call's of the same number.
inline bool has_come(std::uint64_t seen, std::uint64_t wanted, int peer) {
  if (seen == wanted) return true;
  if (static_cast<std::uint32_t>(seen) == static_cast<std::uint32_t>(wanted)) throw TagMismatch{peer};
  return false;
}

}  // namespace collectives
