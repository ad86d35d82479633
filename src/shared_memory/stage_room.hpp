// A room: where some ranks of a host perform stages together. Everyone is in the room of the whole host. Where the host
// has several domains (caches or memories of their own), everyone is in the room of its domain too, and in that of its
// rail, which is one rank of each domain.
//
// Ranks in a room count from 0. What they share there lies in the arena and is theirs alone; whether the communicator
// has failed is the same everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "shared_memory/arena.hpp"

namespace collectives {

class StageRoom {
 public:
  static constexpr int kHost = 0, kDomain = 1, kRail = 2;
  static constexpr int kRooms = 3;  ///< of a host with several domains; others have the first

  /// The room of the whole host.
  explicit StageRoom(const Arena& arena) : StageRoom(arena, kHost, everyone(arena.ranks())) {}
  /// `members`: their local ranks, ascending, this rank's among them; the same to all of them.
  StageRoom(const Arena& arena, int number, std::vector<int> members)
      : arena_(&arena),
        number_(number),
        members_(std::move(members)),
        self_(static_cast<int>(std::ranges::find(members_, arena.self()) - members_.begin())) {}

  int self() const noexcept { return self_; }
  int ranks() const noexcept { return static_cast<int>(members_.size()); }
  /// The local rank, on the host, of rank `i` of the room.
  int local(int i) const noexcept { return members_[static_cast<std::size_t>(i)]; }

  const ArenaShape& shape() const noexcept { return arena_->shape(); }
  /// Whether its ranks are known to have a cache in common, where not all of the host have.
  bool has_one_cache() const noexcept { return number_ == kDomain; }
  bool failed() const noexcept { return arena_->failed(); }
  std::atomic<std::uint64_t>& touching() const noexcept { return arena_->block(arena_->self()).touching.value; }

  StageBlock& block(int i) const noexcept { return arena_->stage_block(number_, local(i)); }
  ClaimBlock& claims() const noexcept { return block(0).claims; }
  std::byte* lines(int i, std::uint64_t slot) const noexcept { return arena_->lines(number_, local(i), slot); }
  std::byte* staging(int i) const noexcept { return arena_->staging(number_, local(i)); }
  std::size_t staging_bytes() const noexcept { return arena_->staging_bytes(); }

 private:
  static std::vector<int> everyone(int ranks) {
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
