// Some ranks in a fixed order, and this rank's position among them: what every message algorithm stands on. Positions
// count modulo the size, so "behind" and "ahead" never leave the circle.
#pragma once

#include "steps/step.hpp"

namespace collectives {

struct RankGroup {
  Peers members;  ///< in the order in which contributions are combined
  int self = 0;   ///< this rank's position

  constexpr int size() const { return static_cast<int>(members.size()); }
  constexpr int ahead(int stops) const { return (self + stops) % size(); }
  constexpr int behind(int stops) const { return (self - stops + size()) % size(); }
  /// The member at a position, as the peer of a Step.
  constexpr Peers at(int position) const { return members.subspan(static_cast<std::size_t>(position), 1); }
  constexpr Peers me() const { return at(self); }
  constexpr Peers next() const { return at(ahead(1)); }
  constexpr Peers previous() const { return at(behind(1)); }
};

/// How values are reduced along an algorithm.
struct Reduction {
  Place source = Place::input;        ///< where the own value is read
  Place destination = Place::output;  ///< where the result is kept
  bool finish = true;                 ///< the result is complete: divide, round

  /// Own values are the callers' contributions, not partial results of an earlier stage.
  constexpr bool unreduced() const { return source == Place::input; }
};

}  // namespace collectives
