// How the threads of a grid share out the elements of vectors: sixteen bytes at a time where all vectors lie alike to
// them, so that every access of a warp is whole lines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"

namespace collectives::cuda {

inline constexpr std::size_t kVectorBytes = 16;

/// A range of elements: some before the first vector, vectors, some behind the last.
struct Pieces {
  std::size_t lead, vectors, tail;
  /// What threads take in turn.
  COLLECTIVES_SHARED std::size_t items() const { return vectors > lead + tail ? vectors : lead + tail; }
};

/// `lies`: the address of the first element modulo sixteen, of all vectors; kUnlike where they differ: singly then.
inline constexpr std::uintptr_t kUnlike = kVectorBytes;
COLLECTIVES_SHARED Pieces pieces_of(std::uintptr_t lies, std::size_t count, std::size_t element_bytes) {
  if (lies == kUnlike || lies % element_bytes != 0) return {count, 0, 0};
  const std::size_t before = (kVectorBytes - lies) % kVectorBytes / element_bytes;
  if (before >= count) return {count, 0, 0};
  const std::size_t lanes = kVectorBytes / element_bytes;
  const std::size_t vectors = (count - before) / lanes;
  return {before, vectors, count - before - vectors * lanes};
}

/// Where the `s`-th of the elements lies that are in no vector: 0 <= s < lead + tail.
COLLECTIVES_SHARED std::size_t single(const Pieces& pieces, std::size_t count, std::size_t s) {
  return s < pieces.lead ? s : count - pieces.tail + (s - pieces.lead);
}

/// The address modulo sixteen that both have; kUnlike where they differ.
COLLECTIVES_SHARED std::uintptr_t alike(std::uintptr_t lies, const void* other) {
  return lies == reinterpret_cast<std::uintptr_t>(other) % kVectorBytes ? lies : kUnlike;
}

}  // namespace collectives::cuda
