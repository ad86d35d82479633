// Algorithms for gather, scatter and scan of the backend `hierarchical`.
//
// On one host, each of these collectives is a single host Step: the ranks perform it together through shared memory. On
// several hosts, gather and scatter have two forms:
//
//   direct  every rank of another host exchanges a message with the root: for long parts
//   tree    one rank per host, the leader, exchanges messages along a binomial tree of leaders: for short vectors
//
// In the tree, one message holds the parts of all ranks of several hosts. With H hosts, the root of a gather therefore
// receives at most log2(H) messages, rounded up. In the direct form, it receives one message from each rank of H - 1
// hosts. The ranks of each host must have consecutive numbers, so that the parts in a message form one range. Price of
// the tree: a leader copies the parts of other ranks, and the vector must fit in one message.
//
// A scan on several hosts passes partial results from rank to rank (ring.hpp), or is a direct exchange
// (direct_exchange.hpp).
#pragma once

#include <algorithm>

#include "hierarchical/leaders.hpp"

namespace collectives::hierarchical {

/// Returns a gather or scatter in which the rank with index `root` of this host has the whole vector.
constexpr Step rooted_step(Step::Kind kind, const Grid& grid, const Parts& parts, int root, const Reduction& how) {
  Step step = host_step(kind, parts, grid.here(), how);
  step.root = root;
  return step;
}

/// Calls visit() for each rank of all other hosts. First visits one rank of each host, then a second rank of each host,
/// and so on. Begins with the host after this rank's host.
template <class Visit>
constexpr void for_each_away(const Grid& grid, Visit&& visit) {
  std::size_t most = 0;
  for (int h = 0; h < grid.host_count(); ++h) most = std::max(most, grid.ranks_of(h).size());
  for (std::size_t local = 0; local < most; ++local)
    for (int stop = 1; stop < grid.host_count(); ++stop) {
      const Peers ranks = grid.ranks_of((grid.host + stop) % grid.host_count());
      if (local < ranks.size()) visit(ranks.subspan(local, 1));
    }
}

/// Emits a gather. Ranks of other hosts send their part to the root. The ranks of the root's host gather in shared
/// memory. Wire: the parts of all other hosts into the root's host.
template <class Run>
constexpr void gather(const Grid& grid, int root_host, int root_local, const Parts& parts, Run&& run) {
  const Rank root = grid.ranks_of(root_host)[static_cast<std::size_t>(root_local)];
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  if (grid.host != root_host) return run(send({&root, 1}, parts[self], Place::input));
  run(grid.one_rank_each() && grid.host_count() > 1
          ? copy(parts[self], Place::input, Place::output)
          : rooted_step(Step::Kind::host_gather, grid, parts, root_local, {.finish = false}));
  if (self == root) for_each_away(grid, [&](Peers owner) { run(receive(owner, parts[owner[0]])); });
}

/// Emits a scatter. The root sends the ranks of other hosts their parts. Ranks of its own host read theirs in shared
/// memory. Wire: the parts of all other hosts out of the root's host.
template <class Run>
constexpr void scatter(const Grid& grid, int root_host, int root_local, const Parts& parts, Run&& run) {
  const Rank root = grid.ranks_of(root_host)[static_cast<std::size_t>(root_local)];
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  if (grid.host != root_host) return run(receive({&root, 1}, parts[self]));
  if (self == root) for_each_away(grid, [&](Peers owner) { run(send(owner, parts[owner[0]], Place::input)); });
  run(grid.one_rank_each() && grid.host_count() > 1
          ? copy(parts[self], Place::input, Place::output)
          : rooted_step(Step::Kind::host_scatter, grid, parts, root_local, {.finish = false}));
}

namespace tree {

/// Position of a host in the binomial tree, and its neighbours. Positions count from the root's host. The hosts of a
/// subtree have consecutive positions.
class Position {
 public:
  constexpr Position(const Grid& grid, int root_host) : grid_(grid), root_(root_host) {
    at_ = (grid.host - root_host + grid.host_count()) % grid.host_count();
    while (to_parent_ < grid.host_count() && (at_ & to_parent_) == 0) to_parent_ *= 2;
  }
  constexpr bool is_root() const { return at_ == 0; }
  constexpr int parent() const { return host_at(at_ - to_parent_); }
  /// Returns the hosts of the subtree of this host.
  constexpr leaders::Exchange::Run subtree() const { return hosts(at_, to_parent_); }
  /// Visits the children with the hosts of their subtrees, the nearest first or the farthest first.
  template <class Visit>
  constexpr void for_each_child(bool farthest_first, Visit&& visit) const {
    const auto visit_at = [&](int distance) {
      if (at_ + distance < grid_.host_count()) visit(host_at(at_ + distance), hosts(at_ + distance, distance));
    };
    if (farthest_first)
      for (int distance = to_parent_ / 2; distance > 0; distance /= 2) visit_at(distance);
    else
      for (int distance = 1; distance < to_parent_; distance *= 2) visit_at(distance);
  }

 private:
  constexpr int host_at(int position) const { return (root_ + position) % grid_.host_count(); }
  constexpr leaders::Exchange::Run hosts(int position, int most) const {
    return {host_at(position), std::min(most, grid_.host_count() - position)};
  }
  const Grid& grid_;
  int root_, at_ = 0;
  int to_parent_ = 1;  // distance to the parent; for the root: a power of two, at least the number of hosts
};

/// Returns the rank that exchanges messages for host h: the root for its host, and the first rank for other hosts.
constexpr Rank leader(const Grid& grid, int h, int root_host, int root_local) {
  return grid.ranks_of(h)[h == root_host ? static_cast<std::size_t>(root_local) : 0];
}

/// Emits a gather along the tree of leaders.
template <class Run>
constexpr void gather(const Grid& grid, int root_host, int root_local, const Parts& parts, Run&& run) {
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool at_root = grid.host == root_host;
  const int local = at_root ? root_local : 0;
  const Place held = at_root ? Place::output : Place::work;
  Step inside = grid.one_rank_each()
                    ? copy(parts[self], Place::input, held)
                    : rooted_step(Step::Kind::host_gather, grid, parts, local, {.destination = held, .finish = false});
  inside.work = parts.whole();
  run(inside);
  if (grid.local != local) return;
  const Position position(grid, root_host);
  position.for_each_child(false, [&](int child, leaders::Exchange::Run hosts) {
    const Rank from = leader(grid, child, root_host, root_local);
    leaders::for_each_range(grid, parts, hosts, [&](Range range) {
      Step received{.from = {&from, 1}, .range = range, .destination = held};
      received.work = parts.whole();
      run(received);
    });
  });
  if (at_root) return;
  const Rank to = leader(grid, position.parent(), root_host, root_local);
  leaders::for_each_range(grid, parts, position.subtree(), [&](Range range) {
    run(send({&to, 1}, range, Place::work));
  });
}

/// Emits a scatter along the tree of leaders.
template <class Run>
constexpr void scatter(const Grid& grid, int root_host, int root_local, const Parts& parts, Run&& run) {
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool at_root = grid.host == root_host;
  const int local = at_root ? root_local : 0;
  const Place held = at_root ? Place::input : Place::work;
  if (grid.local == local) {
    const Position position(grid, root_host);
    const Rank from = at_root ? self : leader(grid, position.parent(), root_host, root_local);
    if (!at_root)
      leaders::for_each_range(grid, parts, position.subtree(), [&](Range range) {
        Step received{.from = {&from, 1}, .range = range, .destination = Place::work};
        received.work = parts.whole();
        run(received);
      });
    position.for_each_child(true, [&](int child, leaders::Exchange::Run hosts) {
      const Rank to = leader(grid, child, root_host, root_local);
      leaders::for_each_range(grid, parts, hosts, [&](Range range) { run(send({&to, 1}, range, held)); });
    });
  }
  run(grid.one_rank_each()
          ? copy(parts[self], held, Place::output)
          : rooted_step(Step::Kind::host_scatter, grid, parts, local, {.source = held, .finish = false}));
}

}  // namespace tree

/// Emits a scan. One host: a single host Step. Several hosts: from rank to rank in rank order.
template <class Run>
constexpr void scan(const Grid& grid, const RankGroup& world, bool exclusive, Range whole, Run&& run) {
  if (grid.host_count() > 1) return ring::scan(world, exclusive, whole, run);
  run(host_step(exclusive ? Step::Kind::host_exclusive_scan : Step::Kind::host_scan,
                Parts::equal(whole, static_cast<int>(grid.here().size())), grid.numbers.first(grid.here().size()), {}));
}

}  // namespace collectives::hierarchical
