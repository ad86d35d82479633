// Direct exchange: every contribution to a part goes unsummed to the part's owner, who adds them in rank order, scales
// once and rounds once. What the ring and the hierarchy use where partial sums would lose bits (16-bit floats, integer
// averages, `deterministic`): the same bytes as a ring, and the same bits whatever the backend.
#pragma once

#include "steps/rank_group.hpp"

namespace collectives::direct_exchange {

/// Each rank ends with the reduction of its own part.
///
/// Steps: p - 1 messages out, then one gather of p - 1.  Wire: (p - 1)/p of the buffer, sent and received, per rank.
/// Order: the order of the members, which is rank order. Rank r starts with the peer after it, so no owner is flooded.
template <class Run>
constexpr void reduce_scatter(const RankGroup& group, const Parts& parts, const Reduction& how, Run&& run) {
  for (int stop = 1; stop < group.size(); ++stop) {
    const int owner = group.ahead(stop);
    run(send(group.at(owner), parts[owner], how.source));
  }
  run(complete(group.members, {}, parts[group.self], how.source, how.unreduced(), how.finish, how.destination));
}

/// The member at position `root` ends with the reduction.
///
/// Steps: one message per rank.  Wire: the buffer per rank; the root receives p - 1 of them.
template <class Run>
constexpr void reduce(const RankGroup& group, int root, Range range, const Reduction& how, Run&& run) {
  if (group.self != root) return run(send(group.at(root), range, how.source));
  run(complete(group.members, {}, range, how.source, how.unreduced(), how.finish, how.destination));
}

}  // namespace collectives::direct_exchange
