// Two levels inside one host whose ranks sit in several domains: sockets, memories or last-level caches of their own.
// What crosses from one domain to another is dear, so every byte does it once per domain instead of once per rank.
//
// The picture is that of hierarchical.hpp one size smaller: domains in place of hosts, and a rail is one rank of each
// domain. But both levels share memory: what is an exchange of messages there is an intra-host collective of the rail
// here. All domains have equally many ranks.
#pragma once

#include "hierarchical/hierarchical.hpp"

namespace collectives::two_level {

constexpr Step subgroup_step(Subgroup subgroup, Step::Kind kind, const Parts& parts, Peers owners,
                             const Reduction& how) {
  Step step = hierarchical::host_step(kind, parts, owners, how);
  step.subgroup = subgroup;
  return step;
}

/// A stage in which rank `root` of its room deals with all of `range`.
constexpr Step subgroup_step_of_root(Subgroup subgroup, Step::Kind kind, Range range, int root, const Reduction& how) {
  Step step = subgroup_step(subgroup, kind, Parts::equal(range, 1), {}, how);
  step.root = root;
  return step;
}

/// Reduce-scatter inside, all-reduce of each slice along its rail, all-gather inside. Between domains: (D-1)/D of the
/// buffer in and out of each.
template <class Run>
constexpr void all_reduce(const Grid& grid, Range whole, Run&& run) {
  const Parts slices = Parts::equal(whole, grid.slices());
  const Parts pieces = Parts::equal(slices[grid.local], grid.host_count());
  const Peers domains = grid.numbers.first(static_cast<std::size_t>(grid.host_count()));
  run(subgroup_step(Subgroup::domain, Step::Kind::host_reduce_scatter, slices, grid.slice_owners(), {.finish = false}));
  run(subgroup_step(Subgroup::rail, Step::Kind::host_all_reduce, pieces, domains, {.source = Place::output}));
  run(subgroup_step(Subgroup::domain, Step::Kind::host_all_gather, slices, grid.slice_owners(),
                    {.source = Place::output}));
}

/// For each domain in turn: its parts are added up inside every domain, and the sums along each rail.
template <class Run>
constexpr void reduce_scatter(const Grid& grid, const Parts& parts, Run&& run) {
  for (int d = 0; d < grid.host_count(); ++d) {
    const Peers owners = grid.ranks_of(d);
    const Range mine = parts[owners[static_cast<std::size_t>(grid.local)]];
    run(subgroup_step(Subgroup::domain, Step::Kind::host_reduce_scatter, parts, owners,
                      {.destination = Place::work, .finish = false}));
    run(subgroup_step_of_root(Subgroup::rail, Step::Kind::host_reduce_scatter, mine, d, {.source = Place::work}));
  }
}

/// Along the rails first, then the parts of each domain in turn inside every domain.
template <class Run>
constexpr void all_gather(const Grid& grid, const Parts& parts, Run&& run) {
  run(subgroup_step(Subgroup::rail, Step::Kind::host_all_gather, parts, grid.rail().members, {}));
  for (int d = 0; d < grid.host_count(); ++d)
    run(subgroup_step(Subgroup::domain, Step::Kind::host_all_gather, parts, grid.ranks_of(d),
                      {.source = Place::output}));
}

/// The root's domain first; then each of its ranks hands a slice down its rail; then the other domains gather them.
template <class Run>
constexpr void broadcast(const Grid& grid, int root_domain, int root_local, Range whole, Run&& run) {
  const Parts slices = Parts::equal(whole, grid.slices());
  if (grid.host == root_domain)
    run(subgroup_step_of_root(Subgroup::domain, Step::Kind::host_all_gather, whole, root_local, {}));
  run(subgroup_step_of_root(Subgroup::rail, Step::Kind::host_all_gather, slices[grid.local], root_domain,
                            {.source = Place::output}));
  if (grid.host != root_domain)
    run(subgroup_step(Subgroup::domain, Step::Kind::host_all_gather, slices, grid.slice_owners(),
                      {.source = Place::output}));
}

/// Inside every domain to the rank that is on the root's rail, then along that rail.
template <class Run>
constexpr void reduce(const Grid& grid, int root_domain, int root_local, Range whole, Run&& run) {
  run(subgroup_step_of_root(Subgroup::domain, Step::Kind::host_reduce_scatter, whole, root_local,
                            {.destination = Place::work, .finish = false}));
  if (grid.local == root_local)
    run(subgroup_step_of_root(Subgroup::rail, Step::Kind::host_reduce_scatter, whole, root_domain,
                              {.source = Place::work}));
}

/// Inside every domain, between one rank of each, inside again.
template <class Run>
constexpr void barrier(const Grid& grid, Run&& run) {
  const auto synchronize = [&](Subgroup subgroup) {
    run(Step{.kind = Step::Kind::host_barrier, .subgroup = subgroup});
  };
  synchronize(Subgroup::domain);
  if (grid.local == 0) synchronize(Subgroup::rail);
  synchronize(Subgroup::domain);
}

}  // namespace collectives::two_level
