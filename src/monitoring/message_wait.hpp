// Message wait: the point-to-point message for which a rank waits. A rank stores its message wait in one word, which
// other ranks read.
//
// A rank that has waited for a millisecond publishes its wait in the arena, the shared memory of its host. After 100
// ms, it also sends the wait to the ranks of other hosts. If the deadline of a point-to-point call passes, the error
// names the peer, the rank for which the peer waits, and so on. The error thus shows ranks that wait for one another in
// a cycle. If the deadline of a collective passes, the error names the message waits of missing ranks of this host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/messages.hpp"
#include "collectives/types.hpp"

namespace collectives {

struct MessageWait {
  enum class Kind : std::uint8_t { none, send, receive };
  Kind kind = Kind::none;
  Rank peer = kNoRank;  ///< rank at the other end, or any_source
  int tag = 0;

  bool operator==(const MessageWait&) const = default;

  /// Returns the wait as one word. The word holds the kind in its highest bits, then the peer, then the tag. It is 0 if
  /// the rank does not wait.
  std::uint64_t word() const noexcept {
    if (kind == Kind::none) return 0;
    return static_cast<std::uint64_t>(kind) << 62 | (static_cast<std::uint64_t>(peer) & kField) << 31 |
           (static_cast<std::uint64_t>(tag) & kField);
  }
  /// Returns the wait that a word holds. An invalid word counts as no wait.
  static MessageWait of(std::uint64_t word) noexcept {
    const auto kind = static_cast<Kind>(word >> 62);
    if (kind != Kind::send && kind != Kind::receive) return {};
    const std::uint64_t peer = word >> 31 & kField;
    const bool any = peer == (static_cast<std::uint64_t>(any_source) & kField);
    return {kind, any ? any_source : static_cast<Rank>(peer), static_cast<int>(word & kField)};
  }

 private:
  static constexpr std::uint64_t kField = (std::uint64_t{1} << 31) - 1;
};

/// Returns the wait of a rank as text: "rank 1 waits to receive from rank 0, tag 3".
std::string wait_text(Rank rank, const MessageWait& wait);
/// Returns the chain of awaited ranks that begins with the wait `own` of rank `first`. The chain holds the peer of
/// `own`, the rank for which that peer waits, and so on. Stops at a rank that was returned before. `wait_of`: returns
/// the wait of another rank of `ranks` ranks.
std::vector<Rank> awaited_ranks(Rank first, const MessageWait& own, int ranks,
                                const std::function<MessageWait(Rank)>& wait_of);
/// Returns the waits that begin at rank `first`, which waits for `own`: "rank 0 waits to receive from 1, rank 1 waits
/// to receive from 0". Follows each wait to the rank at its other end, and stops at a rank that was named before.
/// `wait_of`: returns the wait of another rank of `ranks` ranks.
std::string waits_text(Rank first, const MessageWait& own, int ranks, const std::function<MessageWait(Rank)>& wait_of);

}  // namespace collectives
