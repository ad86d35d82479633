// Grid: the ranks of a communicator in rows and columns. A row holds the ranks of one host. A column holds one rank of
// each host. A second kind of grid, RankView::inner, holds the ranks of one host. Each row of that grid holds the ranks
// of one NUMA domain.
//
// A column is called a rail. The ranks of a rail have the same local number. The local number of a rank is its index in
// its host. An algorithm may divide the vector among the rails. A slice is the range of the vector that one rail
// handles.
#pragma once

#include <span>

#include "steps/rank_group.hpp"

namespace collectives {

/// Grid, with the position of one rank in the grid.
struct Grid {
  std::span<const Peers> hosts;  ///< hosts[h]: the ranks of host h, ascending
  std::span<const Peers> rails;  ///< rails[s]: local rank s of every host; the number of rails is the number of ranks
                                 ///< of the smallest host
  Peers numbers;                 ///< the list 0, 1, 2, ...; local rank s owns slice s
  int host = 0;
  int local = 0;

  constexpr int host_count() const { return static_cast<int>(hosts.size()); }
  constexpr int slices() const { return static_cast<int>(rails.size()); }
  /// Returns whether every host has one rank only.
  constexpr bool one_rank_each() const { return numbers.size() == hosts.size(); }
  constexpr Peers here() const { return hosts[static_cast<std::size_t>(host)]; }
  constexpr Peers ranks_of(int h) const { return hosts[static_cast<std::size_t>(h)]; }
  constexpr bool on_rail() const { return local < slices(); }
  constexpr RankGroup rail() const { return {rails[static_cast<std::size_t>(local)], host}; }
  /// Returns the local ranks that own a slice.
  constexpr Peers slice_owners() const { return numbers.first(static_cast<std::size_t>(slices())); }
};

}  // namespace collectives
