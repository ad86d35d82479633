// Reduce-scatter and all-gather of short vectors: one rank of every host, its leader, exchanges for all of them, and
// what goes to a host and beyond it travels in one message. So a host exchanges log2(H) times, rounded up, where in
// hierarchical.hpp each of its ranks sends H - 1 messages of one part. With equal parts the longest is half of the
// vector.
//
// A message holds parts of several hosts: ranks are numbered host by host, and all is done in one round.
#pragma once

#include <algorithm>

#include "hierarchical/between.hpp"
#include "hierarchical/hierarchical.hpp"

namespace collectives::hierarchical::leaders {

/// What the leader of a host does at one distance of an all-gather: `mine`, which it has by then, goes to host `to`,
/// `theirs` comes from host `from`. The other way around, and from the largest distance to the smallest, it is a
/// reduce-scatter: its sums of `theirs` go to `from`, others' sums of `mine` come from `to`.
///
/// Recursive doubling where the hosts are as many as a power of two. Otherwise as Bruck and others do it for any number
/// ("Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997).
struct Exchange {
  /// Of hosts, which go on with the first after the last.
  struct Run {
    int first, count;
  };
  int to, from;
  Run mine, theirs;

  constexpr Exchange(int hosts, int self, int distance) {
    if ((hosts & (hosts - 1)) == 0) {
      to = from = self ^ distance;
      mine = {self & ~(distance - 1), distance};
      theirs = {from & ~(distance - 1), distance};
    } else {
      const int count = std::min(distance, hosts - distance);
      to = (self - distance + hosts) % hosts;
      from = (self + distance) % hosts;
      mine = {self, count};
      theirs = {from, count};
    }
  }
};

/// The ranges of the vector that belong to the ranks of those hosts: one, or two.
template <class Visit>
constexpr void for_each_range(const Grid& grid, const Parts& parts, Exchange::Run hosts, Visit&& visit) {
  const auto visit_range = [&](int first, int end) {
    const Range low = parts[grid.ranks_of(first).front()], high = parts[grid.ranks_of(end - 1).back()];
    visit(Range{low.first, high.first + high.count - low.first});
  };
  const int end = hosts.first + hosts.count, all = grid.host_count();
  visit_range(hosts.first, std::min(end, all));
  if (end > all) visit_range(0, end - all);
}

/// The leader has the host's sums of the whole vector; after the exchanges, the sums for the ranks of its host.
template <class Run>
constexpr void reduce_scatter(const Grid& grid, const Parts& parts, Run&& run) {
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool alone = grid.one_rank_each();
  if (alone) {
    run(complete({&self, 1}, {}, parts.whole(), Place::input, false, false, Place::work));
  } else {
    Step summed = host_step(Step::Kind::host_reduce_scatter, Parts::equal(parts.whole(), 1), {},
                            {.destination = Place::work, .finish = false});
    summed.root = 0;
    run(summed);
    if (grid.local > 0) return run(receive(grid.here().first(1), parts[self]));
  }
  const RankGroup rail = grid.rail();
  int distance = 1;
  while (2 * distance < rail.size()) distance *= 2;
  for (; distance > 0; distance /= 2) {
    const Exchange exchange(rail.size(), rail.self, distance);
    const bool last = distance == 1;
    for_each_range(grid, parts, exchange.theirs,
                   [&](Range range) { run(send(rail.at(exchange.from), range, Place::work)); });
    for_each_range(grid, parts, exchange.mine, [&](Range range) {
      run(complete(Pair(rail, exchange.to).ranks, {}, range, Place::work, false, last,
                   last && alone ? Place::output : Place::work));
    });
  }
  if (alone) return;
  for (std::size_t local = 1; local < grid.here().size(); ++local) {
    const Peers owner = grid.here().subspan(local, 1);
    run(send(owner, parts[owner[0]], Place::work));
  }
  run(copy(parts[self], Place::work, Place::output));
}

/// The ranks of a host show one another their parts; the leader exchanges them for those of all others, which it shows.
template <class Run>
constexpr void all_gather(const Grid& grid, const Parts& parts, Run&& run) {
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool alone = grid.one_rank_each();
  run(alone ? copy(parts[self], Place::input, Place::output)
            : host_step(Step::Kind::host_all_gather, parts, grid.here(), {}));
  if (grid.local == 0) {
    const RankGroup rail = grid.rail();
    for (int distance = 1; distance < rail.size(); distance *= 2) {
      const Exchange exchange(rail.size(), rail.self, distance);
      for_each_range(grid, parts, exchange.mine,
                     [&](Range range) { run(send(rail.at(exchange.to), range, Place::output)); });
      for_each_range(grid, parts, exchange.theirs, [&](Range range) { run(receive(rail.at(exchange.from), range)); });
    }
  }
  if (alone) return;
  Step shown = host_step(Step::Kind::host_all_gather, Parts::equal(parts.whole(), 1), {}, {.source = Place::output});
  shown.root = 0;
  run(shown);
}

}  // namespace collectives::hierarchical::leaders
