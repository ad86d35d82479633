// Error texts about ranks that did not arrive at a rendezvous. In a rendezvous, all ranks connect before they have a
// transport. The bootstrap over TCP and the bootstrap of threads use the same texts.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Returns the ranks that have not arrived, in ascending order. here[r] tells whether rank r has arrived.
inline std::vector<Rank> missing_ranks(const std::vector<bool>& here) {
  std::vector<Rank> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(static_cast<Rank>(rank));
  }
  return missing;
}

/// Returns "ranks 1-2 did not come to the rendezvous at 10.0.0.1:29500 (rank 0 waited 2.0 s)". `place` may be empty.
inline std::string did_not_come(const std::vector<Rank>& missing, std::string_view place, Rank waiter, double seconds) {
  return fmt::format("{} did not come to the rendezvous{}{} (rank {} waited {:.1f} s)", ranks_text(missing),
                     place.empty() ? "" : " at ", place, waiter, seconds);
}

}  // namespace collectives
