// Roofline: a measured bound for the time of a collective inside one host. The ranks only move the bytes that any
// implementation of the collective must move.
//
// All ranks move their bytes at the same time, in shared memory. A part is the range of the vector that belongs to a
// rank. A slice is the range that a rank moves if there are no parts: 1/p of the vector for each of p ranks.
//
//                    reads                        writes
//   all_reduce       its slice of all vectors     the sum to all results
//   reduce_scatter   its part of all vectors      the sum to its result
//   all_gather       its part                     to all results
//   broadcast        its slice of root's vector   to all results
//   reduce           its slice of all vectors     the sum to root's result
//
// Other operations have no measured bound.
//
// In place, a rank does not write data that is already at its place in the result. Sources are read once and sums stay
// in registers, so no implementation needs less traffic. Both plain and non-temporal stores (which bypass the caches)
// are measured, and the faster kind is the bound. A barrier ends each measurement, because a rank has its result only
// after the other ranks have moved their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives_bench/options.hpp"

namespace collectives::bench {

/// Memory that all ranks of one host have mapped, with one region for each rank.
class SharedRegions {
 public:
  /// Collective. All pages of the calling rank's region are present. Throws std::system_error.
  SharedRegions(Bootstrap& bootstrap, std::size_t bytes_per_rank);
  ~SharedRegions();
  SharedRegions(const SharedRegions&) = delete;
  SharedRegions& operator=(const SharedRegions&) = delete;

  std::byte* of(Rank rank) const noexcept { return memory_ + static_cast<std::size_t>(rank) * stride_; }

 private:
  std::size_t stride_, bytes_;
  std::byte* memory_;
};

/// Returns whether the bound of the operation can be measured.
bool has_roofline(Operation) noexcept;

enum class Stores : std::uint8_t { plain, non_temporal };

class Roofline {
 public:
  /// Collective over ranks of one host. Allocates memory for the largest of `cases`.
  Roofline(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases);

  /// Selects what the next calls of move() do.
  void use(const Case&);
  /// Moves this rank's bytes of the next set of vectors, then waits in the barrier.
  void move(Stores);
  /// Returns a rank's input in the first set. The output follows the input.
  std::byte* memory(Rank rank) const noexcept { return regions_.of(rank); }

 private:
  Communicator& comm_;
  const Settings& settings_;
  SharedRegions regions_;
  std::vector<const std::byte*> sources_;  // addresses in the first set
  std::vector<std::byte*> destinations_;
  std::size_t bytes_ = 0, sets_ = 1, stride_ = 0, at_ = 0;
};

/// Adds `bytes` at `offset` of all sources, as 64-bit integers, and writes the sum to all destinations. Requires whole
/// cache lines and at least one source.
void sum_lines(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, std::size_t offset,
               std::size_t bytes, Stores stores);

}  // namespace collectives::bench
