// Two levels inside one host whose ranks sit in several domains: sockets, memories or last-level caches of their own.
// What crosses from one domain to another is dear, so every byte does it once per domain instead of once per rank.
//
// The picture is that of hierarchical.hpp one size smaller: domains in place of hosts, and a rail is one rank of each
// domain. But both levels share memory: what is an exchange of messages there is a host stage of the rail here. All
// domains have equally many ranks.
#pragma once

#include "hierarchical/hierarchical.hpp"

namespace collectives::two_level {

constexpr Step stage(Among among, Step::Kind kind, const Parts& parts, Peers which, const Reduction& how) {
  Step step = hierarchical::host_step(kind, parts, which, how);
  step.among = among;
  return step;
}

/// A stage in which rank `only` of its room deals with all of `range`.
constexpr Step stage_of_one(Among among, Step::Kind kind, Range range, int only, const Reduction& how) {
  Step step = stage(among, kind, Parts::equal(range, 1), {}, how);
  step.only = only;
  return step;
}

/// Reduce-scatter inside, all-reduce of each slice along its rail, all-gather inside. Between domains: (D-1)/D of the
/// buffer in and out of each.
template <class Run>
constexpr void all_reduce(const Grid& grid, Range whole, Run&& run) {
  const Parts slices = Parts::equal(whole, grid.slices());
  const Parts pieces = Parts::equal(slices[grid.local], grid.host_count());
  const Peers domains = grid.numbers.first(static_cast<std::size_t>(grid.host_count()));
  run(stage(Among::domain, Step::Kind::host_reduce_scatter, slices, grid.slice_owners(), {.finish = false}));
  run(stage(Among::rail, Step::Kind::host_all_reduce, pieces, domains, {.own = Place::output}));
  run(stage(Among::domain, Step::Kind::host_all_gather, slices, grid.slice_owners(), {.own = Place::output}));
}

/// For each domain in turn: its parts are added up inside every domain, and the sums along each rail.
template <class Run>
constexpr void reduce_scatter(const Grid& grid, const Parts& parts, Run&& run) {
  for (int d = 0; d < grid.host_count(); ++d) {
    const Peers owners = grid.ranks_of(d);
    const Range mine = parts[owners[static_cast<std::size_t>(grid.local)]];
    run(stage(Among::domain, Step::Kind::host_reduce_scatter, parts, owners, {.keep = Place::work, .finish = false}));
    run(stage_of_one(Among::rail, Step::Kind::host_reduce_scatter, mine, d, {.own = Place::work}));
  }
}

/// Along the rails first, then the parts of each domain in turn inside every domain.
template <class Run>
constexpr void all_gather(const Grid& grid, const Parts& parts, Run&& run) {
  run(stage(Among::rail, Step::Kind::host_all_gather, parts, grid.rail().members, {}));
  for (int d = 0; d < grid.host_count(); ++d)
    run(stage(Among::domain, Step::Kind::host_all_gather, parts, grid.ranks_of(d), {.own = Place::output}));
}

/// The root's domain first; then each of its ranks hands a slice down its rail; then the other domains gather them.
template <class Run>
constexpr void broadcast(const Grid& grid, int root_domain, int root_local, Range whole, Run&& run) {
  const Parts slices = Parts::equal(whole, grid.slices());
  if (grid.host == root_domain) run(stage_of_one(Among::domain, Step::Kind::host_all_gather, whole, root_local, {}));
  run(stage_of_one(Among::rail, Step::Kind::host_all_gather, slices[grid.local], root_domain, {.own = Place::output}));
  if (grid.host != root_domain)
    run(stage(Among::domain, Step::Kind::host_all_gather, slices, grid.slice_owners(), {.own = Place::output}));
}

/// Inside every domain to the rank that is on the root's rail, then along that rail.
template <class Run>
constexpr void reduce(const Grid& grid, int root_domain, int root_local, Range whole, Run&& run) {
  run(stage_of_one(Among::domain, Step::Kind::host_reduce_scatter, whole, root_local,
                   {.keep = Place::work, .finish = false}));
  if (grid.local == root_local)
    run(stage_of_one(Among::rail, Step::Kind::host_reduce_scatter, whole, root_domain, {.own = Place::work}));
}

/// Inside every domain, between one rank of each, inside again.
template <class Run>
constexpr void barrier(const Grid& grid, Run&& run) {
  const auto meet = [&](Among among) { run(Step{.kind = Step::Kind::host_barrier, .among = among}); };
  meet(Among::domain);
  if (grid.local == 0) meet(Among::rail);
  meet(Among::domain);
}

}  // namespace collectives::two_level
