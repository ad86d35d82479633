// The bound that a collective inside one host is held against, measured: the ranks do nothing but move the bytes that
// it must move. All ranks at once, in shared memory, each its share:
//
//                    reads                      writes
//   all_reduce       its slice of all vectors   the sum to all results
//   reduce_scatter   its part of all vectors    the sum to its result
//   all_gather       its part                   to all results
//   broadcast        its slice of root's vector to all results
//   reduce           its slice of all vectors   the sum to root's result
//
// In place, a result that its reader already has is not written. Sources are read once and sums kept in registers, so
// this is the least traffic there can be. Whether plain or non-temporal stores are faster depends on machine and size;
// the bound is the better of the two. A barrier ends it, as no rank has its result before the others have moved theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives_bench/options.hpp"

namespace collectives::bench {

/// Memory that all ranks of one host have mapped: one region for each.
class SharedRegions {
 public:
  /// Collective. The calling rank's region is present in full. Throws std::system_error.
  SharedRegions(Bootstrap& bootstrap, std::size_t bytes_per_rank);
  ~SharedRegions();
  SharedRegions(const SharedRegions&) = delete;
  SharedRegions& operator=(const SharedRegions&) = delete;

  std::byte* of(Rank rank) const noexcept { return memory_ + static_cast<std::size_t>(rank) * stride_; }

 private:
  std::size_t stride_, bytes_;
  std::byte* memory_;
};

enum class Stores : std::uint8_t { plain, non_temporal };

class Roofline {
 public:
  /// Collective, over ranks of one host. Memory for the largest of `cases`.
  Roofline(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases);

  /// What the next calls of move() do.
  void use(const Case&);
  /// This rank's share, on the next set of vectors of --rotate, and the barrier.
  void move(Stores);
  /// A rank's input, and behind it its output, of the first set.
  std::byte* memory(Rank rank) const noexcept { return regions_.of(rank); }

 private:
  Communicator& comm_;
  const Settings& settings_;
  SharedRegions regions_;
  std::vector<const std::byte*> sources_;  // of the first set
  std::vector<std::byte*> destinations_;
  std::size_t bytes_ = 0, sets_ = 1, stride_ = 0, at_ = 0;
};

/// Sums `bytes` at `offset` of all sources, as 64-bit integers, into all destinations. Whole cache lines; at least one
/// source.
void sum_lines(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, std::size_t offset,
               std::size_t bytes, Stores stores);

}  // namespace collectives::bench
