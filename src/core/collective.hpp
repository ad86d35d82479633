// Properties of collectives: for example, whether a collective combines values of several ranks, and whether it has a
// root.
#pragma once

#include "collectives/types.hpp"

namespace collectives {

/// Returns whether the collective combines values by an op. Other collectives only copy values.
constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce || collective == Collective::scan || collective == Collective::exclusive_scan;
}

/// Returns whether a rank gets the combined values of the ranks before it.
constexpr bool is_scan(Collective collective) noexcept {
  return collective == Collective::scan || collective == Collective::exclusive_scan;
}

/// Returns the number of ranks whose values are combined in the result of rank `rank` of `size` ranks. Returns 1 if
/// this rank has no result.
constexpr int finish_ranks_of(Collective collective, Rank rank, int size) noexcept {
  return collective == Collective::scan             ? rank + 1
         : collective == Collective::exclusive_scan ? (rank > 0 ? rank : 1)
                                                    : size;
}

/// Returns whether the collective has a root: one rank with the source or with the result.
constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

/// Returns whether the input of a rank is its part of the vector.
constexpr bool has_part_as_input(Collective collective) noexcept {
  return collective == Collective::all_gather || collective == Collective::gather;
}
/// Returns whether the output of a rank is its part of the vector.
constexpr bool has_part_as_output(Collective collective) noexcept {
  return collective == Collective::reduce_scatter || collective == Collective::scatter;
}

/// Returns whether, in the v-form of the collective, each rank knows only the counts that it uses itself. If so, ranks
/// compare neither counts nor displacements.
constexpr bool has_local_counts(Collective collective) noexcept {
  return collective == Collective::gather || collective == Collective::scatter || collective == Collective::all_to_all;
}

}  // namespace collectives
