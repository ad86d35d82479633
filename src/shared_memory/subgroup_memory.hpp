// Subgroup memory: the part of the arena in which a subgroup performs collectives. A subgroup is a set of ranks of one
// host. The arena is the memory that all ranks of a host share in one communicator.
//
// Every rank belongs to the subgroup of its whole host. A domain is the set of ranks whose cores share a last-level
// cache or a socket. If the host has several domains with equally many ranks, each rank belongs to two more subgroups.
// One of these subgroups is the rank's domain. The other one is the rank's rail, which consists of one rank of each
// domain.
//
// The members of a subgroup are numbered from 0. Only members access the memory of a subgroup. A failure in one
// subgroup is a failure of the whole communicator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "shared_memory/arena.hpp"

namespace collectives {

/// Memory of one subgroup. In the functions of this class, `i` is the number of a member.
class SubgroupMemory {
 public:
  static constexpr int kHost = 0, kDomain = 1, kRail = 2;
  /// Maximum number of subgroups of a rank: its host, its domain and its rail. A rank of a host without domains has
  /// only kHost.
  static constexpr int kSubgroups = 3;

  /// Makes the subgroup of the whole host.
  explicit SubgroupMemory(const Arena& arena) : SubgroupMemory(arena, kHost, all_ranks(arena.ranks())) {}
  /// Makes the view of a subgroup. `members`: local ranks in ascending order. The list is equal on all members, and
  /// contains this rank.
  SubgroupMemory(const Arena& arena, int number, std::vector<int> members)
      : arena_(&arena),
        number_(number),
        members_(std::move(members)),
        self_(static_cast<int>(std::ranges::find(members_, arena.self()) - members_.begin())) {}

  int self() const noexcept { return self_; }
  int ranks() const noexcept { return static_cast<int>(members_.size()); }
  /// Returns the local rank of member `i`: its number on the host.
  int local(int i) const noexcept { return members_[static_cast<std::size_t>(i)]; }

  const ArenaShape& shape() const noexcept { return arena_->shape(); }
  /// Returns true if the members are known to share a cache that not all ranks of the host share.
  bool has_one_cache() const noexcept { return number_ == kDomain; }
  bool failed() const noexcept { return arena_->failed(); }
  std::atomic<std::uint64_t>& remote_access() const noexcept {
    return arena_->block(arena_->self()).remote_access.value;
  }

  HostCollectiveBlock& block(int i) const noexcept { return arena_->host_collective_block(number_, local(i)); }
  ClaimBlock& claims() const noexcept { return block(0).claims; }
  std::byte* lines(int i, std::uint64_t slot) const noexcept { return arena_->lines(number_, local(i), slot); }
  std::byte* staging(int i) const noexcept { return arena_->staging(number_, local(i)); }
  std::size_t staging_bytes() const noexcept { return arena_->staging_bytes(); }

 private:
  static std::vector<int> all_ranks(int ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  const Arena* arena_;
  int number_;
  std::vector<int> members_;
  int self_;
};

}  // namespace collectives
