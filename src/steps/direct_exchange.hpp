// Direct exchange: a reduction without partial sums. The vector is cut into parts. Each part has one rank as its
// owner. Every rank sends its contribution (its unreduced input) to the owner of each part.
//
// The owner adds the contributions in rank order. It divides an average once, and rounds a 16-bit float once. Without a
// codec, the result therefore has the same bits on every backend. Between hosts, all backends with Steps use a direct
// exchange if needs_direct() returns true (reduction/reduction.hpp). The function returns true for integer averages and
// for ops that do not commute. It also returns true for floats of 16 and 8 bits, and for all floats in
// `deterministic` calls.
// Only min and max of floats are exceptions. In a reduce-scatter, a rank sends as many bytes as in a ring. explain()
// prints "contributions travel unsummed".
//
// Price: each of p ranks exchanges messages with p - 1 peers. In a ring, a rank has only two neighbours.
#pragma once

#include "steps/rank_group.hpp"

namespace collectives::direct_exchange {

/// Emits the Steps of a reduce-scatter: every part is reduced to its owner. A Step is one action of a rank (step.hpp).
///
/// Each of p ranks sends p - 1 messages. It then reduces p contributions. If parts are equal, a rank sends and receives
/// (p - 1)/p of the vector. The sum is in the order of the members, which is rank order.
///
/// Rank r sends to rank r + 1 first, so that not all ranks send to the same owner at once.
template <class Run>
constexpr void reduce_scatter(const RankGroup& group, const Parts& parts, const Reduction& how, Run&& run) {
  for (int stop = 1; stop < group.size(); ++stop) {
    const int owner = group.ahead(stop);
    run(send(group.at(owner), parts[owner], how.source));
  }
  run(complete(group.members, {}, parts[group.self], how.source, how.unreduced(), how.finish, how.destination));
}

/// Emits the Steps of a reduce to the member at position `root`.
///
/// Every rank but the root sends its whole input to the root in one message. The root receives p - 1 messages.
template <class Run>
constexpr void reduce(const RankGroup& group, int root, Range range, const Reduction& how, Run&& run) {
  if (group.self != root) return run(send(group.at(root), range, how.source));
  run(complete(group.members, {}, range, how.source, how.unreduced(), how.finish, how.destination));
}

}  // namespace collectives::direct_exchange
