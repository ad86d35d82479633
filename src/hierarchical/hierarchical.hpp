// Hierarchical algorithms: shared memory inside a host, messages between hosts.
//
// A Step is one action of a rank. A host Step is a collective that the ranks of one host perform together through
// shared memory (steps/step.hpp). With one host, an algorithm is a single host Step. With several hosts, host Steps
// reduce or gather the data of each host, and messages carry the results between hosts.
//
// The local number of a rank is its index in its host. In an all-reduce, broadcast or reduce, the vector is divided
// into slices. The number of slices is the number of ranks of the smallest host. The ranks with local number s of all
// hosts form rail s. Only ranks of rail s send slice s between hosts. In a reduce-scatter or all-gather, the vector is
// divided into parts instead. A part is the range of the vector that belongs to one rank. In all these collectives, a
// host sends one sum or one copy of the data, not one per rank. Several ranks of a host send at the same time.
//
// The plan of a call names the algorithm by which the ranks of a rail exchange messages (between.hpp). For short
// vectors, the plan may let only one rank of each host exchange messages. In an all-reduce or broadcast, the whole
// vector is then one slice. In a reduce-scatter or all-gather, that rank is the leader of its host (leaders.hpp). If
// every host has only one rank, host Steps are left out, except in reduce and barrier.
//
// Price: if hosts have different numbers of ranks, the additional ranks of larger hosts send nothing in an all-reduce.
#pragma once

#include "steps/grid.hpp"
#include "steps/rank_group.hpp"

namespace collectives::hierarchical {

/// Returns a host Step of all ranks of a host. The rank with index l in the host owns the range parts[owners[l]].
constexpr Step host_step(Step::Kind kind, const Parts& parts, Peers owners, const Reduction& how) {
  return {.kind = kind,
          .finish = how.finish,
          .source = how.source,
          .destination = how.destination,
          .parts = parts,
          .owners = owners};
}

/// Returns a reduction whose source is the value that a rank sends to other hosts. The value is the sum of the rank's
/// host, and lies in the output. If each host has one rank, there is no such sum, and the source is the rank's input.
constexpr Reduction host_sums(const Grid& grid) {
  return {.source = grid.one_rank_each() ? Place::input : Place::output};
}

/// Emits an all-reduce.
///
/// One host: a single host Step. Several hosts: a reduce-scatter inside the host, an all-reduce of each slice along its
/// rail, and an all-gather inside the host. Rounds overlap. While one round works inside the host, messages of other
/// rounds are on the wire.
///
/// `Between` is the all-reduce along a rail (between.hpp).
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

/// Visits the ranks of host h in batches. A batch has no more ranks than this host. Each local rank can thus handle the
/// part of one rank of the batch.
template <class Visit>
constexpr void for_each_batch(const Grid& grid, int h, Visit&& visit) {
  const Peers ranks = grid.ranks_of(h);
  const std::size_t hands = grid.here().size();
  for (std::size_t first = 0; first < ranks.size(); first += hands)
    visit(ranks.subspan(first, std::min(hands, ranks.size() - first)));
}

/// Returns the rank of host h that exchanges with local rank `local` of this host. Its local rank is `local` modulo the
/// number of ranks of host h.
constexpr Rank partner(const Grid& grid, int h, int local) {
  const Peers ranks = grid.ranks_of(h);
  return ranks[static_cast<std::size_t>(local) % ranks.size()];
}

/// Emits a reduce-scatter.
///
/// The local ranks first add the parts of each host in turn. They send the sums to that host. Then every rank adds one
/// sum per host, in host order. Wire: (H-1)/H of the buffer out of each host.
template <class Run>
constexpr void reduce_scatter(const Grid& grid, const Parts& parts, std::span<Rank> scratch, Run&& run) {
  if (grid.host_count() == 1) return run(host_step(Step::Kind::host_reduce_scatter, parts, grid.here(), {}));
  const Rank self = grid.here()[static_cast<std::size_t>(grid.local)];
  const bool alone = grid.one_rank_each();
  // Starts with the next host, so that not all hosts send to the same host at once. The own host is last. Its sum is
  // then cached for the final addition.
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

/// Emits an all-gather.
///
/// Each rank first sends its part to one rank of every other host. Then the local ranks gather the received parts from
/// one another. Wire: the parts of a host, once to each other host.
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

/// Emits a broadcast.
///
/// The ranks of the root's host first get the whole buffer. Then each of them sends its slice along its rail. The ranks
/// of the other hosts gather the slices inside their host. Wire: the buffer into each host.
///
/// `Between` is the broadcast along a rail. If `coded`, the other hosts receive rounded values. The root therefore
/// first rounds its output, slice by slice, as the rails will code it. Its host then uses that output.
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
  // Now the ranks of the root's host have the buffer in the output. If the root is alone on its host, it still has the
  // buffer in its input.
  const Place source = from_here && alone ? Place::input : Place::output;
  if (grid.local < slice_count) Between::broadcast(grid.rail(), root_host, slices[grid.local], source, run);
  if (from_here || alone) return;
  Step inside = host_step(Step::Kind::host_all_gather, slices,
                          grid.numbers.first(static_cast<std::size_t>(slice_count)), {.source = Place::output});
  inside.depth = 1;
  run(inside);
}

/// Emits a reduce.
///
/// One host: a single host Step, in which the root owns the whole vector. Several hosts: a reduce-scatter inside each
/// host. Then the ranks of each rail send their sums to the root. The root adds one sum per host, in host order. Wire:
/// the buffer out of each host but the root's.
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

/// Emits a barrier: inside the host, then between one rank of every host, then inside the host again. No rank leaves
/// before all ranks have entered.
template <class Between, class Run>
constexpr void barrier(const Grid& grid, Run&& run) {
  run(Step{.kind = Step::Kind::host_barrier});
  if (grid.host_count() == 1) return;
  if (grid.local == 0) Between::barrier(grid.rail(), run);
  run(Step{.kind = Step::Kind::host_barrier});
}

}  // namespace collectives::hierarchical
