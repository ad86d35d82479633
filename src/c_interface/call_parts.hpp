// Helpers of C functions for collectives: the lengths of buffers, from counts.
#pragma once

#include <algorithm>
#include <cstddef>

#include "c_interface/calls.hpp"

namespace collectives::c {

/// Number of elements of the buffer with all parts, and of this rank's part. If `whole` overflows, the C++ call refuses
/// the arguments.
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

}  // namespace collectives::c
