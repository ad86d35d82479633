// List of missing ranks. In a rendezvous, all ranks connect, so that they can exchange bytes before they have a
// transport. A rank is missing until it has connected. Log lines and errors contain the list.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// Returns the ranks that have not arrived, in ascending order. here[r] is true if rank r has arrived.
inline std::vector<Rank> missing_ranks(const std::vector<bool>& here) {
  std::vector<Rank> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(static_cast<Rank>(rank));
  }
  return missing;
}

}  // namespace collectives
