// Words for the ranks that a rendezvous waited for in vain, the same in every bootstrap.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// The ranks r with !here[r], ascending.
inline std::vector<Rank> missing_ranks(const std::vector<bool>& here) {
  std::vector<Rank> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(static_cast<Rank>(rank));
  }
  return missing;
}

/// "ranks 1-2 did not come to the rendezvous at 10.0.0.1:29500 (rank 0 waited 2.0 s)"; `place` may be empty.
inline std::string did_not_come(const std::vector<Rank>& missing, std::string_view place, Rank waiter, double seconds) {
  return fmt::format("{} did not come to the rendezvous{}{} (rank {} waited {:.1f} s)", ranks_text(missing),
                     place.empty() ? "" : " at ", place, waiter, seconds);
}

}  // namespace collectives
