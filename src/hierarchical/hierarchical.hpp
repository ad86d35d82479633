// Hierarchical: what can be done inside a host is done there, through shared memory, and between hosts each local rank
// drives its own slice, so that the wire carries every byte once per host and all of a host's ranks feed it.
//
// One host: a single host Step. Several hosts: the vector has as many slices as the smallest host has ranks; slice s
// belongs to local rank s of every host, and those ranks form *rail* s.
#pragma once

#include "steps/grid.hpp"
#include "steps/rank_group.hpp"

namespace collectives::hierarchical {

constexpr Step host_step(Step::Kind kind, const Parts& parts, Peers owners, const Reduction& how) {
  return {.kind = kind,
          .finish = how.finish,
          .source = how.source,
          .destination = how.destination,
          .parts = parts,
          .owners = owners};
}

/// What a host has summed before its ranks turn to other hosts. With one rank on each there is nothing to sum, and
/// contributions go out as they are.
constexpr Reduction host_sums(const Grid& grid) {
  return {.source = grid.one_rank_each() ? Place::input : Place::output};
}

/// One host: the host's own all-reduce. Several: reduce-scatter inside, an all-reduce of each slice along its rail,
/// all-gather inside; of the rounds, one works inside while others are on the wire.
///
/// `Between`: how a slice becomes its sum along a rail (between.hpp).
template <class Between, class Run>
constexpr void all_reduce(const Grid& grid, int slice_count, Range whole, Run&& run) {
  const Parts slices = Parts::equal(whole, slice_count);
  const Peers owners = grid.numbers.first(static_cast<std::size_t>(slice_count));
  if (grid.host_count() == 1) return run(host_step(Step::Kind::host_all_reduce, slices, owners, {}));
  const bool alone = grid.one_rank_each();
  if (!alone) run(host_step(Step::Kind::host_reduce_scatter, slices, owners, {.finish = false}));
  if (grid.local < slice_count) {
    Deeper deeper{run, 1};
    Between::all_reduce(grid.rail(), slices[grid.local], host_sums(grid), deeper);
  }
  if (alone) return;
  Step inside = host_step(Step::Kind::host_all_gather, slices, owners, {.source = Place::output});
  inside.depth = 1 + Between::depths(grid.host_count());
  run(inside);
}

/// The parts of host h's ranks, as many at a time as this host has ranks to deal with them.
template <class Visit>
constexpr void for_each_batch(const Grid& grid, int h, Visit&& visit) {
  const Peers ranks = grid.ranks_of(h);
  const std::size_t hands = grid.here().size();
  for (std::size_t first = 0; first < ranks.size(); first += hands)
    visit(ranks.subspan(first, std::min(hands, ranks.size() - first)));
}

/// Whom a rank of this host meets at host h: the local rank of its own number, counted modulo the host's ranks.
constexpr Rank partner(const Grid& grid, int h, int local) {
  const Peers ranks = grid.ranks_of(h);
  return ranks[static_cast<std::size_t>(local) % ranks.size()];
}

/// Inside the host first: local ranks share out the parts of each host in turn and send the sums there; then every rank
/// adds one sum per host, in host order. Wire: (H-1)/H of the buffer out of each host.
template <class Run>
constexpr void reduce_scatter(const Grid& grid, const Parts& parts, std::span<Rank> scratch, Run&& run) {
  if (grid.host_count() == 1) return run(host_step(Step::Kind::host_reduce_scatter, parts, grid.here(), {}));
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool alone = grid.one_rank_each();
  // Hosts after mine first, my own last, so that no host is flooded and my own sum is still at hand in the end.
  for (int stop = 1; stop <= grid.host_count(); ++stop) {
    const int h = (grid.host + stop) % grid.host_count();
    const Place destination = h == grid.host ? Place::output : Place::work;
    for_each_batch(grid, h, [&](Peers batch) {
      if (alone) {
        if (h != grid.host) run(combine({&self, 1}, batch, parts[batch[0]], Place::input, false));
        return;
      }
      run(host_step(Step::Kind::host_reduce_scatter, parts, batch, {.destination = destination, .finish = false}));
      if (h == grid.host || static_cast<std::size_t>(grid.local) >= batch.size()) return;
      const Peers owner = batch.subspan(static_cast<std::size_t>(grid.local), 1);
      run(send(owner, parts[owner[0]], Place::work));
    });
  }
  for (int h = 0; h < grid.host_count(); ++h)
    scratch[static_cast<std::size_t>(h)] = h == grid.host ? self : partner(grid, h, grid.local);
  Step sum = complete(scratch.first(static_cast<std::size_t>(grid.host_count())), {}, parts[self],
                      host_sums(grid).source, false, true, Place::output);
  sum.depth = kRoundsOnTheWire;
  run(sum);
}

/// Between hosts first: each rank sends its part to one rank of every other host; then the local ranks show one another
/// what came in. Wire: the parts of a host, once to each other host.
template <class Run>
constexpr void all_gather(const Grid& grid, const Parts& parts, Place source, Run&& run) {
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  if (grid.host_count() == 1)
    return run(host_step(Step::Kind::host_all_gather, parts, grid.here(), {.source = source}));
  for (int stop = 1; stop < grid.host_count(); ++stop) {
    const Rank there = partner(grid, (grid.host + stop) % grid.host_count(), grid.local);
    run(send({&there, 1}, parts[self], source));
  }
  run(copy(parts[self], source, Place::output));
  AtDepth later{run, kRoundsOnTheWire};
  for (int stop = 0; stop < grid.host_count(); ++stop) {
    const int h = (grid.host + stop) % grid.host_count();
    for_each_batch(grid, h, [&](Peers batch) {
      if (h != grid.host && static_cast<std::size_t>(grid.local) < batch.size()) {
        const Peers owner = batch.subspan(static_cast<std::size_t>(grid.local), 1);
        later(receive(owner, parts[owner[0]]));
      }
      if (!grid.one_rank_each()) later(host_step(Step::Kind::host_all_gather, parts, batch, {.source = Place::output}));
    });
  }
}

/// The root's host first; then each of its local ranks hands its slice down its rail; then the other hosts gather the
/// slices inside. Wire: the buffer into each host.
///
/// `Between`: how a slice goes along a rail. `coded`: what the other hosts will see is rounded; the root's host starts
/// with that, slice by slice, as the rails will code them.
template <class Between, class Run>
constexpr void broadcast(const Grid& grid, int slice_count, int root_host, int root_local, Range whole, bool coded,
                         Run&& run) {
  const Parts slices = Parts::equal(whole, slice_count);
  const bool from_here = grid.host == root_host, alone = grid.one_rank_each();
  if (from_here && (!alone || grid.host_count() == 1)) {
    const bool rounded = coded && grid.host_count() > 1;
    if (rounded && grid.local == root_local)
      for (int s = 0; s < slice_count; ++s) run(copy(slices[s], Place::input, Place::output));
    Step inside = host_step(Step::Kind::host_all_gather, Parts::equal(whole, 1), {},
                            {.source = rounded ? Place::output : Place::input});
    inside.root = root_local;
    run(inside);
  }
  if (grid.host_count() == 1) return;
  // Everyone of the root's host holds the buffer in its output by now, unless the root is all there is of it.
  const Place source = from_here && alone ? Place::input : Place::output;
  if (grid.local < slice_count) Between::broadcast(grid.rail(), root_host, slices[grid.local], source, run);
  if (from_here || alone) return;
  Step inside = host_step(Step::Kind::host_all_gather, slices,
                          grid.numbers.first(static_cast<std::size_t>(slice_count)), {.source = Place::output});
  inside.depth = 1;
  run(inside);
}

/// One host: its ranks show the root their contributions. Several: reduce-scatter inside each, then every rail hands
/// its sums to the root, which adds one per host, in host order. Wire: the buffer out of each host but the root's.
template <class Run>
constexpr void reduce(const Grid& grid, int root_host, int root_local, Range whole, std::span<Rank> scratch,
                      Run&& run) {
  const Rank root = grid.ranks_of(root_host)[static_cast<std::size_t>(root_local)];
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  if (grid.host_count() == 1) {
    Step inside = host_step(Step::Kind::host_reduce_scatter, Parts::equal(whole, 1), {}, {});
    inside.root = root_local;
    return run(inside);
  }
  const Parts slices = Parts::equal(whole, grid.slices());
  run(host_step(Step::Kind::host_reduce_scatter, slices, grid.slice_owners(),
                {.destination = Place::work, .finish = false}));
  for (int s = 0; s < grid.slices(); ++s) {
    const Peers rail = grid.rails[static_cast<std::size_t>(s)];
    if (self == root) {
      for (std::size_t h = 0; h < rail.size(); ++h) scratch[h] = rail[h];
      run(complete(scratch.first(rail.size()), {}, slices[s], Place::work, false, true, Place::output));
    } else if (grid.local == s) {
      run(send({&root, 1}, slices[s], Place::work));
    }
  }
}

/// Inside the host, between one rank of every host, inside the host again: nobody leaves before everyone has come.
template <class Between, class Run>
constexpr void barrier(const Grid& grid, Run&& run) {
  run(Step{.kind = Step::Kind::host_barrier});
  if (grid.host_count() == 1) return;
  if (grid.local == 0) Between::barrier(grid.rail(), run);
  run(Step{.kind = Step::Kind::host_barrier});
}

}  // namespace collectives::hierarchical
