// Pairs of calls that differ: some ranks make the first call of a pair, and the other ranks make the second one. Then
// all ranks make a barrier. Every rank must get a mismatch, at the latest in the barrier. The texts must be equal on
// all ranks, and must name the call and its ranks.
//
// A cell is a situation in which pairs are tried. Its ranks are threads. For each pair they split a communicator of
// their own from a world that lives as long as the cell.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fault/different_calls.hpp"

namespace collectives::testing {

/// Indices in different_calls().
struct CallPair {
  std::size_t first, second;
};
/// Returns all pairs of two different calls, in both orders.
std::vector<CallPair> all_call_pairs();

struct Cell {
  std::vector<int> hosts;  ///< hosts[r]: host of rank r
  unsigned first = 1;      ///< bit r is 1 if rank r makes the first call of a pair
  std::string backend = "auto";
  Interface interface = Interface::blocking;
  std::string wire = {};  ///< wire between hosts; empty: the library's choice; "queue": a queue in memory
  std::string text() const;
};
/// Returns the cells of every world of 2 to 4 ranks, every division of its ranks, every backend and every interface.
std::vector<Cell> all_cells(const std::string& wire);

struct Tried {
  std::size_t pairs = 0;
  std::size_t refused_alike = 0;  ///< pairs of which all ranks were refused with one text, which is no mismatch
  std::vector<std::string> faults;
  std::vector<double> seconds;  ///< from the call to the error, for each rank and pair
  void add(Tried other);
};
/// Tries the pairs in a cell. Each call that waits has the deadline `timeout`.
Tried try_pairs(const Cell& cell, const std::vector<CallPair>& pairs,
                std::chrono::nanoseconds timeout = std::chrono::seconds(20));
/// Tries `pairs` random pairs in each of `cells` random cells.
Tried try_drawn_cells(std::uint64_t seed, std::size_t cells, std::size_t pairs);

}  // namespace collectives::testing
