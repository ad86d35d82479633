// Division of arrays in GPU memory among the threads of a kernel.
//
// A GPU is fastest if each thread reads 16 bytes at a time from an address that is a multiple of 16. Several arrays can
// be read in this way only if they are alike: their addresses are equal modulo 16, and their elements equally long. If
// all arrays of a kernel are alike, only the elements at the two ends are accessed singly. All other elements are
// accessed in units of 16 bytes. The accesses of a warp (32 threads) then cover whole cache lines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"

namespace collectives::cuda {

/// Number of bytes that a thread reads or writes in one access. It is the maximum of a GPU instruction.
inline constexpr std::size_t kVectorBytes = 16;

/// Division of an array: single elements at the start, units of 16 bytes (`vectors`), and single elements at the end.
struct Pieces {
  std::size_t lead, vectors, tail;
  /// Returns the maximum number of threads that have work. Each thread handles a unit of 16 bytes, a single element, or
  /// both.
  COLLECTIVES_SHARED std::size_t items() const { return vectors > lead + tail ? vectors : lead + tail; }
};

/// Value of the argument `lies` of pieces_of() if the arrays are not alike.
inline constexpr std::uintptr_t kUnlike = kVectorBytes;
/// Divides an array of `count` elements. If all arrays are alike, `lies` is the address of their first element modulo
/// 16. If not, `lies` is kUnlike, and all elements are single.
COLLECTIVES_SHARED Pieces pieces_of(std::uintptr_t lies, std::size_t count, std::size_t element_bytes) {
  if (lies == kUnlike || lies % element_bytes != 0) return {count, 0, 0};
  const std::size_t before = (kVectorBytes - lies) % kVectorBytes / element_bytes;
  if (before >= count) return {count, 0, 0};
  const std::size_t lanes = kVectorBytes / element_bytes;
  const std::size_t vectors = (count - before) / lanes;
  return {before, vectors, count - before - vectors * lanes};
}

/// Returns the index of the `s`-th single element, 0 <= s < lead + tail.
COLLECTIVES_SHARED std::size_t single(const Pieces& pieces, std::size_t count, std::size_t s) {
  return s < pieces.lead ? s : count - pieces.tail + (s - pieces.lead);
}

/// Returns `lies` if the address `other` modulo 16 equals it. Returns kUnlike otherwise.
COLLECTIVES_SHARED std::uintptr_t alike(std::uintptr_t lies, const void* other) {
  return lies == reinterpret_cast<std::uintptr_t>(other) % kVectorBytes ? lies : kUnlike;
}

}  // namespace collectives::cuda
