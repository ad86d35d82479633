// The ring: every rank talks to two neighbours only, and all links work all the time. Optimal in bytes for any rank
// count (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009); its price
// is a number of hops that grows with the ranks.
#pragma once

#include "steps/rank_group.hpp"

namespace collectives::ring {

/// Each rank ends with the reduction of its own part.
///
/// Part p sets out from the rank after p, gains one term at every stop, and comes home to p complete.
/// Steps: n - 1 hops.  Wire: (n - 1)/n of the buffer, sent and received, per rank.
/// Order: part p is summed (p+1) + (p+2) + ... + p: fixed, so equal runs give equal bits. The op must commute.
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

/// Every rank ends with every part. Each part goes once around and stops just before home.
///
/// Steps: n - 1 hops.  Wire: (n - 1)/n of the buffer, sent and received, per rank.
template <class Run>
constexpr void all_gather(const RankGroup& ring, const Parts& parts, Place source, Run&& run) {
  const int n = ring.size();
  run(Step{
      .to = n > 1 ? ring.next() : Peers{}, .range = parts[ring.self], .source = source, .destination = Place::output});
  for (int hop = 1; hop < n - 1; ++hop) run(forward(ring.previous(), ring.next(), parts[ring.behind(hop)]));
  if (n > 1) run(receive(ring.previous(), parts[ring.behind(n - 1)]));
}

/// The buffer goes from the root around the ring and stops before it.
///
/// Steps: n - 1 hops, pipelined over the rounds.  Wire: the buffer, sent and received, per rank.
template <class Run>
constexpr void broadcast(const RankGroup& ring, int root, Range range, Run&& run) {
  const Peers onward = ring.ahead(1) == root ? Peers{} : ring.next();
  if (ring.self == root)
    run(Step{.to = onward, .range = range, .source = Place::input, .destination = Place::output});
  else
    run(forward(ring.previous(), onward, range));
}

/// The buffer sets out after the root, gains one term at every stop, and ends at the root.
///
/// Steps: n - 1 hops, pipelined over the rounds.  Wire: the buffer, sent and received, per rank.
/// Order: (root+1) + (root+2) + ... + root.
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

}  // namespace collectives::ring
