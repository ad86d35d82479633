// Property of collectives: whether a collective combines values of several ranks.
#pragma once

#include "collectives/types.hpp"

namespace collectives {

/// Returns whether the collective combines values instead of only moving them.
constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

}  // namespace collectives
