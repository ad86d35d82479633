// Direct exchange: every contribution to a part goes unsummed to the part's owner, who adds them in rank order, scales
// once and rounds once. What the ring and the hierarchy use where partial sums would lose bits (16-bit floats, integer
// averages, `deterministic`): the same bytes as a ring, and the same bits whatever the backend.
#pragma once

#include "steps/circle.hpp"

namespace collectives::direct {

/// Each rank ends with the reduction of its own part.
///
/// Steps: p - 1 messages out, then one gather of p - 1.  Wire: (p - 1)/p of the buffer, sent and received, per rank.
/// Order: the order of the members, which is rank order. Rank r starts with the peer after it, so no owner is flooded.
template <class Run>
constexpr void reduce_scatter(const Circle& circle, const Parts& parts, const Reduction& how, Run&& run) {
  for (int stop = 1; stop < circle.size(); ++stop) {
    const int owner = circle.ahead(stop);
    run(send(circle.at(owner), parts[owner], how.own));
  }
  run(complete(circle.members, {}, parts[circle.self], how.own, how.raw(), how.finish, how.keep));
}

/// The member at position `root` ends with the reduction.
///
/// Steps: one message per rank.  Wire: the buffer per rank; the root receives p - 1 of them.
template <class Run>
constexpr void reduce(const Circle& circle, int root, Range range, const Reduction& how, Run&& run) {
  if (circle.self != root) return run(send(circle.at(root), range, how.own));
  run(complete(circle.members, {}, range, how.own, how.raw(), how.finish, how.keep));
}

}  // namespace collectives::direct
