// Reduce-scatter and all-gather of short vectors through one rank per host, the leader.
//
// The leader sends and receives messages for all ranks of its host. One message carries the data of several hosts, so
// few messages suffice. If H, the number of hosts, is a power of two, each leader sends log2(H) messages: 9 with 512
// hosts. A part is the range of the vector that belongs to one rank. With the algorithms of hierarchical.hpp, each rank
// sends H - 1 messages of one part each if all hosts have equally many ranks. For short vectors, few messages are
// faster, because each message costs one latency and some time of a core. If all hosts have equally many ranks and all
// parts are equally long, a message holds at most half of the vector.
//
// A message holds the parts of consecutive hosts. The algorithms therefore require that ranks are numbered host by
// host: the ranks of each host have consecutive numbers. Other algorithms divide a long vector into segments. These
// algorithms do not.
//
// Price: in a reduce-scatter, the leader stores partial sums of the whole vector. The vector must fit in one message.
// The leader alone adds and sends, although the ranks of its host could share this work.
#pragma once

#include <algorithm>

#include "hierarchical/between.hpp"
#include "hierarchical/hierarchical.hpp"

namespace collectives::hierarchical::leaders {

/// Exchange of a leader with other hosts at one distance: 1, 2, 4, ... hosts away.
///
/// In an all-gather, the leader sends the parts of `mine` to host `to`. It receives the parts of `theirs` from host
/// `from`. A reduce-scatter reverses the directions and begins with the largest distance. In it, the leader sends its
/// sums of `theirs` to `from`, and receives sums of `mine` from `to`.
///
/// The exchanges are recursive doubling if the number of hosts is a power of two. Other numbers use the algorithm of
/// Bruck and others ("Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997).
struct Exchange {
  /// Consecutive hosts; host 0 follows the last host.
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

/// Visits the ranges of the vector that belong to the ranks of `hosts`: two if the hosts wrap around, otherwise one.
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

/// Emits a reduce-scatter. The leader gets the host's sums of the whole vector and exchanges them. It then holds the
/// complete sums for its host. It sends each rank its part.
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

/// Emits an all-gather. The ranks of a host gather their parts. The leader exchanges them for all other hosts' parts.
/// The ranks of its host then copy the whole vector from the leader.
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
