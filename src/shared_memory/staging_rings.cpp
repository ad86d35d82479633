// Implementation of the staging rings: shared memory through which the ranks of a host copy long vectors. Each rank
// writes to its own ring and reads the rings of its peers.
#include "shared_memory/staging_rings.hpp"

#include "base/round_up.hpp"
#include "shared_memory/prefault.hpp"

namespace collectives {
namespace {

/// Number of bytes that are prefaulted together. To prefault pages is to allocate them before first access.
constexpr std::size_t kPrefaulted = 64 << 10;

}  // namespace

StagingRings::StagingRings(const SubgroupMemory& subgroup)
    : subgroup_(subgroup),
      self_(subgroup.self()),
      ranks_(subgroup.ranks()),
      known_staged_(static_cast<std::size_t>(subgroup.ranks())),
      known_combined_(known_staged_),
      left_(known_staged_),
      prefaulted_(static_cast<std::size_t>(subgroup.ranks())) {}

void StagingRings::prefault_pages(int local, const Chunk& chunk) {
  const std::size_t end = chunk.offset + stride_;
  std::size_t& upto = prefaulted_[static_cast<std::size_t>(local)];
  const std::size_t from = std::max(upto, chunk.offset);
  upto = std::min(from + round_up(end - from, kPrefaulted), bytes());
  prefault(subgroup_.staging(local) + from, upto - from);
}

/// Returns whether all peers have finished reading the data before `position` of this rank's ring.
bool StagingRings::all_have_left(std::uint64_t position) {
  for (int local = 0; local < ranks_; ++local) {
    std::uint64_t& left = left_[static_cast<std::size_t>(local)];
    if (local == self_ || left >= position) continue;
    left = subgroup_.block(local).left.value.load(std::memory_order_acquire);
    if (left < position) return false;
  }
  return true;
}

}  // namespace collectives
