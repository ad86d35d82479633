// The ranks of a communicator as rows and columns: a row holds the ranks of one host, a column (rail) one rank of each
// host.
#pragma once

#include <span>

#include "steps/rank_group.hpp"

namespace collectives {

/// Position of one rank: its host among the hosts, its place among the ranks of the host, its rail across the hosts.
struct Grid {
  std::span<const Peers> hosts;  ///< hosts[h]: the ranks of host h, ascending
  std::span<const Peers> rails;  ///< rails[s]: local rank s of every host; as many as the smallest host has ranks
  Peers numbers;                 ///< 0, 1, 2, ...: slice s belongs to local rank s
  int host = 0;
  int local = 0;

  constexpr int host_count() const { return static_cast<int>(hosts.size()); }
  constexpr int slices() const { return static_cast<int>(rails.size()); }
  /// No host has anyone to share memory with.
  constexpr bool one_rank_each() const { return numbers.size() == hosts.size(); }
  constexpr Peers here() const { return hosts[static_cast<std::size_t>(host)]; }
  constexpr Peers ranks_of(int h) const { return hosts[static_cast<std::size_t>(h)]; }
  constexpr bool on_rail() const { return local < slices(); }
  constexpr RankGroup rail() const { return {rails[static_cast<std::size_t>(local)], host}; }
  /// Local ranks as the owners of the slices.
  constexpr Peers slice_owners() const { return numbers.first(static_cast<std::size_t>(slices())); }
};

}  // namespace collectives
