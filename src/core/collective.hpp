// What collectives have in common.
#pragma once

#include "collectives/types.hpp"

namespace collectives {

/// Whether values are combined, not only moved.
constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

}  // namespace collectives
