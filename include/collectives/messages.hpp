// Constants of point-to-point messages: Communicator::send(), recv() and sendrecv().
#pragma once

#include "collectives/types.hpp"

namespace collectives {

/// Source of a receive that takes a message of any rank. Work::source() and the result of recv() then name the rank.
inline constexpr Rank any_source = -2;
/// Largest tag of a point-to-point message. Tags begin at 0.
inline constexpr int kLargestTag = 1 << 30;

}  // namespace collectives
