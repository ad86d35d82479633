// Helpers that compute the lengths of buffers for functions of the C interface. In C++, a buffer is a pointer and a
// length, but a C program passes a pointer and a count. The length of the buffer follows from the count, the number of
// ranks and the collective.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "c_interface/calls.hpp"

namespace collectives::c {

/// Lengths of two buffers in elements: `whole` for the parts of all ranks, and `mine` for the part of this rank. If
/// `whole` overflows, the C++ function throws an error.
struct Parts {
  std::size_t whole, mine;
};
inline Parts equal(const Communicator& comm, std::size_t count) {
  return {count * static_cast<std::size_t>(comm.size()), count};
}
inline PartLayout listed(const Communicator& comm, const std::size_t* counts,
                         const std::size_t* displacements = nullptr) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  return {{&require(counts, "counts"), ranks}, {displacements, displacements == nullptr ? 0 : ranks}};
}
inline Parts unequal(const Communicator& comm, const PartLayout& parts) {
  std::size_t end = 0;
  for (std::size_t r = 0; r < parts.counts.size(); ++r)
    if (parts.counts[r] > 0)
      end = std::max(end, parts.counts[r] + (parts.displacements.empty() ? end : parts.displacements[r]));
  return {end, parts.counts[static_cast<std::size_t>(comm.rank())]};
}

/// Input and output of a call.
struct Buffers {
  ConstBuffer input;
  Buffer output;
};

inline Buffers buffers_of_all_to_all(const Communicator& comm, const void* input, void* output, std::size_t count,
                                     DataType type) {
  const std::size_t whole = equal(comm, count).whole, ranks = static_cast<std::size_t>(comm.size());
  // Both buffers would shrink alike if the product overflowed, so the C++ function could not notice it.
  const std::size_t checked = whole / ranks == count ? whole : std::numeric_limits<std::size_t>::max();
  return {{input, checked, type}, {output, checked, type}};
}
/// Returns the buffers of a gather. Only the root has an output.
inline Buffers buffers_of_gather(const Communicator& comm, const void* input, void* output, std::size_t count,
                                 DataType type, Rank root) {
  const bool gathers = comm.rank() == root;
  return {{input, count, type}, gathers ? Buffer(output, equal(comm, count).whole, type) : Buffer()};
}
/// Returns the buffers of a scatter. Only the root has an input.
inline Buffers buffers_of_scatter(const Communicator& comm, const void* input, void* output, std::size_t count,
                                  DataType type, Rank root) {
  const bool scatters = comm.rank() == root;
  return {scatters ? ConstBuffer(input, equal(comm, count).whole, type) : ConstBuffer(), {output, count, type}};
}

/// Layout of a buffer whose parts have different lengths, from the lists of counts and displacements of a C program.
struct ListedBlocks {
  PartLayout layout;
  std::size_t elements = 0;  ///< length of the buffer, up to the end of its last part

  ListedBlocks() = default;
  /// `name`: name of the parameter for `counts` in the C function, for errors.
  ListedBlocks(const Communicator& comm, const std::size_t* counts, const char* name,
               const std::size_t* displacements) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    layout.counts = {&require(counts, name), ranks};
    if (displacements != nullptr) layout.displacements = {displacements, ranks};
    for (std::size_t r = 0, end = 0; r < ranks; ++r) {
      end = (displacements != nullptr ? displacements[r] : end) + counts[r];
      if (displacements == nullptr || counts[r] > 0) elements = std::max(elements, end);
    }
  }
};

/// Returns the layout of the root's buffer, which holds the blocks of all ranks. Only the root needs it.
inline ListedBlocks at_root(const Communicator& comm, Rank root, const std::size_t* counts,
                            const std::size_t* displacements) {
  return comm.rank() == root ? ListedBlocks(comm, counts, "counts", displacements) : ListedBlocks();
}

}  // namespace collectives::c
