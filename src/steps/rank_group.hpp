// Rank group: a list of ranks in a fixed order, with the position of this rank in `members` in the list. Most functions
// that emit Steps with messages get a rank group as an argument.
//
// ahead() and behind() treat the list as a ring: the first member follows the last one.
#pragma once

#include "steps/step.hpp"

namespace collectives {

struct RankGroup {
  Peers members;  ///< ranks in the order in which contributions are combined
  int self = 0;   ///< position of this rank

  constexpr int size() const { return static_cast<int>(members.size()); }
  constexpr int ahead(int stops) const { return (self + stops) % size(); }
  constexpr int behind(int stops) const { return (self - stops + size()) % size(); }
  /// Returns the member at a position, as a list of one rank.
  constexpr Peers at(int position) const { return members.subspan(static_cast<std::size_t>(position), 1); }
  constexpr Peers me() const { return at(self); }
  constexpr Peers next() const { return at(ahead(1)); }
  constexpr Peers previous() const { return at(behind(1)); }
};

/// Options of a reduction: from where a rank takes its own value, and what it does with the result.
struct Reduction {
  Place source = Place::input;        ///< place of this rank's own value
  Place destination = Place::output;  ///< place to which the result is written
  bool finish = true;  ///< whether the result is final; a final result is divided for an average, and rounded

  /// Returns true if the rank's own value is its contribution, not a partial result of an earlier Step.
  constexpr bool unreduced() const { return source == Place::input; }
};

}  // namespace collectives
