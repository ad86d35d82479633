// Direct exchange: a reduction in which no partial sums travel. The vector is divided into parts, and each part belongs
// to one rank, its owner. A contribution is the unreduced input of a rank. Every rank sends its contribution to a part
// directly to the owner of the part.
//
// The owner adds the contributions in rank order. It divides averages once, and rounds 16-bit floats once. Unless a
// codec changes the values, the result therefore has the same bits on every backend.
//
// Between hosts, all backends use a direct exchange if needs_direct() returns true (reduction/reduction.hpp). That
// function returns true for integer averages, and for ops that do not commute. Except for min and max, it also returns
// true for floats of 16 and 8 bits, and for all floats in `deterministic` calls. For a call with a direct exchange,
// explain() prints "contributions travel unsummed". In a reduce-scatter, a rank sends as many bytes as in a ring.
//
// Price: each rank exchanges messages with p - 1 peers. In a ring, a rank has only two such peers.
#pragma once

#include "steps/rank_group.hpp"

namespace collectives::direct_exchange {

/// Emits the Steps (actions of a rank, step.hpp) of a reduce-scatter, in which every part is reduced to its owner.
///
/// Each of p ranks sends p - 1 messages, and then reduces p contributions to its part. If all parts are equally long, a
/// rank sends (p - 1)/p of the vector, and receives as much. The sum is in the order of the members, which is rank
/// order.
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

/// Emits the Steps of a scan: every rank sends its whole input to all ranks after it.
///
/// The rank at position r sends n - 1 - r messages and receives r of n ranks. Price: the last rank receives the inputs
/// of all others.
template <class Run>
constexpr void scan(const RankGroup& group, bool exclusive, Range range, Run&& run) {
  const std::size_t self = static_cast<std::size_t>(group.self);
  if (group.self + 1 < group.size()) run(send(group.members.subspan(self + 1), range, Place::input));
  const Peers terms = group.members.first(exclusive ? self : self + 1);
  if (!terms.empty()) run(complete(terms, {}, range, Place::input, true, true, Place::output));
}

/// Emits the Steps of a gather: every rank sends its part to the member at position `root`.
///
/// The root receives from the rank after it first, and so on around the end.
template <class Run>
constexpr void gather(const RankGroup& group, int root, const Parts& parts, Run&& run) {
  if (group.self != root) return run(send(group.at(root), parts[group.self], Place::input));
  run(copy(parts[root], Place::input, Place::output));
  for (int stop = 1; stop < group.size(); ++stop) run(receive(group.at(group.ahead(stop)), parts[group.ahead(stop)]));
}

/// Emits the Steps of a scatter: the member at position `root` sends every rank its part, the rank after it first.
template <class Run>
constexpr void scatter(const RankGroup& group, int root, const Parts& parts, Run&& run) {
  if (group.self != root) return run(receive(group.at(root), parts[group.self]));
  for (int stop = 1; stop < group.size(); ++stop)
    run(send(group.at(group.ahead(stop)), parts[group.ahead(stop)], Place::input));
  run(copy(parts[root], Place::input, Place::output));
}

}  // namespace collectives::direct_exchange
