// Ring algorithms: the ranks form a ring. A rank receives only from the rank before it, and sends only to the rank
// after it. In a reduce-scatter or an all-gather, all ranks send at the same time.
//
// In an all-reduce by a ring, each rank sends the fewest bytes that any algorithm permits, for any number of ranks. The
// proof is in Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. A hop
// is the transfer of one message from a rank to the next. Price: the number of hops grows with n, the number of ranks,
// and each hop takes one network latency.
#pragma once

#include "steps/rank_group.hpp"

namespace collectives::ring {

/// Emits the Steps (actions of ranks) of a reduce-scatter. The vector is divided into n parts. Rank p, the rank at
/// position p of the ring, gets the sum of part p.
///
/// The partial sum of part p starts at rank p+1 and passes around the ring. Each rank that it passes adds its own
/// values of part p. Rank p adds last.
///
/// Cost: n - 1 hops. Each rank sends and receives n - 1 parts. If all parts have equal length, a rank thus sends (n -
/// 1)/n of the vector.
///
/// Order of the sum of part p: rank p+1, rank p+2 and so on, around the ring to rank p. The order is the same in every
/// run, so equal inputs give equal bits. This is not rank order, so the op must commute.
template <class Run>
constexpr void reduce_scatter(const RankGroup& ring, const Parts& parts, const Reduction& how, Run&& run) {
  const int n = ring.size();
  if (n == 1) return run(complete(ring.me(), {}, parts[ring.self], how.source, false, how.finish, how.destination));

  const Rank arriving_and_mine[] = {ring.previous()[0], ring.me()[0]};
  run(combine(ring.me(), ring.next(), parts[ring.behind(1)], how.source, false));
  for (int hop = 2; hop < n; ++hop)
    run(combine(arriving_and_mine, ring.next(), parts[ring.behind(hop)], how.source, false));
  run(complete(arriving_and_mine, {}, parts[ring.self], how.source, false, how.finish, how.destination));
}

/// Emits an all-gather. A part starts at its owner, passes all ranks and stops at the rank before its owner.
///
/// Steps: n - 1 hops. Each rank sends and receives n - 1 parts. If parts are equal, that is (n - 1)/n of the buffer.
template <class Run>
constexpr void all_gather(const RankGroup& ring, const Parts& parts, Place source, Run&& run) {
  const int n = ring.size();
  run(Step{
      .to = n > 1 ? ring.next() : Peers{}, .range = parts[ring.self], .source = source, .destination = Place::output});
  for (int hop = 1; hop < n - 1; ++hop) run(forward(ring.previous(), ring.next(), parts[ring.behind(hop)]));
  if (n > 1) run(receive(ring.previous(), parts[ring.behind(n - 1)]));
}

/// Emits a broadcast. The buffer travels from the root around the ring. The rank before the root is the last one.
///
/// Steps: n - 1 hops, pipelined over the rounds. A rank sends and receives the buffer at most once.
template <class Run>
constexpr void broadcast(const RankGroup& ring, int root, Range range, Run&& run) {
  const Peers onward = ring.ahead(1) == root ? Peers{} : ring.next();
  if (ring.self == root)
    run(Step{.to = onward, .range = range, .source = Place::input, .destination = Place::output});
  else
    run(forward(ring.previous(), onward, range));
}

/// Emits a reduce. The rank after the root starts, every hop adds one term, and the root ends.
///
/// Steps: n - 1 hops, pipelined over the rounds. A rank sends and receives the buffer at most once.
///
/// The sum begins with the term of rank root+1. Then come rank root+2 and so on, around the ring to the root.
template <class Run>
constexpr void reduce(const RankGroup& ring, int root, Range range, const Reduction& how, Run&& run) {
  const Rank arriving_and_mine[] = {ring.previous()[0], ring.me()[0]};
  const Peers terms = ring.behind(1) == root ? ring.me() : Peers(arriving_and_mine);
  if (ring.self != root)
    run(combine(terms, ring.next(), range, how.source, false));
  else
    run(complete(ring.size() == 1 ? ring.me() : Peers(arriving_and_mine), {}, range, how.source, false, how.finish,
                 how.destination));
}

/// Emits a scan: the partial result passes from rank 0 to the last rank. Each rank adds its term and keeps the sum. In
/// an exclusive scan, it keeps the sum before it adds its term.
///
/// Steps: n - 1 hops, pipelined over the rounds. A rank sends and receives the buffer at most once. Terms are added in
/// rank order. A result is also passed on, so it is never divided or rounded as a final one.
template <class Run>
constexpr void scan(const RankGroup& ring, bool exclusive, Range range, Run&& run) {
  const bool first = ring.self == 0, last = ring.self == ring.size() - 1;
  const Rank arriving_and_mine[] = {ring.previous()[0], ring.me()[0]};
  const Peers terms = first ? ring.me() : Peers(arriving_and_mine), onward = last ? Peers{} : ring.next();
  if (!exclusive) return run(complete(terms, onward, range, Place::input, false, false, Place::output));
  if (last && !first) return run(complete(ring.previous(), {}, range, Place::input, false, false, Place::output));
  if (last) return;
  Step sum = combine(terms, onward, range, Place::input, false);
  if (!first) sum.before = Place::output;
  run(sum);
}

}  // namespace collectives::ring
