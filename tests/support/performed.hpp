// is_performed(): returns whether any algorithm has a form of a collective.
#pragma once

#include <algorithm>

#include "steps/algorithm.hpp"

namespace collectives {

inline bool is_performed(Collective collective) {
  return std::ranges::any_of(algorithms(), [&](const Algorithm& one) { return performs(one, collective); });
}

}  // namespace collectives
