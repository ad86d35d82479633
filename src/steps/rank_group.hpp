// A group of ranks in a fixed order, and the position of this rank in it: the input of every message algorithm.
//
// Positions count modulo the size. Positions before the first and after the last are therefore valid.
#pragma once

#include "steps/step.hpp"

namespace collectives {

struct RankGroup {
  Peers members;  ///< ranks in the order in which contributions are combined
  int self = 0;   ///< position of this rank

  constexpr int size() const { return static_cast<int>(members.size()); }
  constexpr int ahead(int stops) const { return (self + stops) % size(); }
  constexpr int behind(int stops) const { return (self - stops + size()) % size(); }
  /// Returns the member at a position, as a list.
  constexpr Peers at(int position) const { return members.subspan(static_cast<std::size_t>(position), 1); }
  constexpr Peers me() const { return at(self); }
  constexpr Peers next() const { return at(ahead(1)); }
  constexpr Peers previous() const { return at(behind(1)); }
};

/// Places and completion of a reduction.
struct Reduction {
  Place source = Place::input;        ///< place of this rank's own value
  Place destination = Place::output;  ///< place to which the result is written
  bool finish = true;                 ///< the result is complete: divides and rounds it

  /// Returns whether own values are contributions of the callers, not partial results of an earlier Step.
  constexpr bool unreduced() const { return source == Place::input; }
};

}  // namespace collectives
