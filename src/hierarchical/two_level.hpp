// Two-level algorithms inside a host with ranks in several domains.
//
// A domain is the set of ranks of a host that share a socket or a last-level cache. The library hwloc finds domains,
// unless the user names them. A copy from one domain to another takes more time than a copy inside a domain. With
// two-level algorithms, each byte is copied to a domain once, not once for each rank of the domain.
//
// The algorithms have the structure of hierarchical.hpp, with domains in place of hosts. A rail is one rank of each
// domain. The ranks of a domain or a rail perform a host Step: a collective through shared memory. Rails can do so,
// because all domains share memory. A subgroup is a domain or a rail. Each subgroup has an area of its own in the
// shared memory of the host (shared_memory/subgroup_memory.hpp).
//
// Price: a collective takes several host Steps, and each host Step synchronizes its ranks. For short vectors, the
// library therefore uses one host Step of all ranks instead. It also does so for values that must be added in rank
// order, if domains have different numbers of ranks, and with several hosts. Two fields of the tuning hold the cost of
// data between domains: domain_us and domain_us_per_byte. Their built-in values are guesses, not measurements.
#pragma once

#include "hierarchical/hierarchical.hpp"

namespace collectives::two_level {

/// Returns a host Step of a subgroup. The rank with index l in the subgroup owns the range parts[owners[l]].
constexpr Step subgroup_step(Subgroup subgroup, Step::Kind kind, const Parts& parts, Peers owners,
                             const Reduction& how) {
  Step step = hierarchical::host_step(kind, parts, owners, how);
  step.subgroup = subgroup;
  return step;
}

/// Returns a host Step in which the rank with index `root` in the subgroup owns all of `range`.
constexpr Step subgroup_step_of_root(Subgroup subgroup, Step::Kind kind, Range range, int root, const Reduction& how) {
  Step step = subgroup_step(subgroup, kind, Parts::equal(range, 1), {}, how);
  step.root = root;
  return step;
}

/// Emits an all-reduce: a reduce-scatter inside the domain, an all-reduce of each slice along its rail, and an
/// all-gather inside the domain. Between domains: (D-1)/D of the buffer in and out of each domain.
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

/// Emits a reduce-scatter. For each domain in turn, every domain adds the parts of that domain. Each rail then adds the
/// sums.
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

/// Emits an all-gather. The rails gather first. Then every domain gathers each domain's parts in turn.
template <class Run>
constexpr void all_gather(const Grid& grid, const Parts& parts, Run&& run) {
  run(subgroup_step(Subgroup::rail, Step::Kind::host_all_gather, parts, grid.rail().members, {}));
  for (int d = 0; d < grid.host_count(); ++d)
    run(subgroup_step(Subgroup::domain, Step::Kind::host_all_gather, parts, grid.ranks_of(d),
                      {.source = Place::output}));
}

/// Emits a broadcast. The ranks of the root's domain first get the buffer. Then each of them sends a slice along its
/// rail. The ranks of the other domains gather the slices inside their domain.
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

/// Emits a reduce. Every domain first reduces to its rank on the root's rail. Then that rail reduces to the root.
template <class Run>
constexpr void reduce(const Grid& grid, int root_domain, int root_local, Range whole, Run&& run) {
  run(subgroup_step_of_root(Subgroup::domain, Step::Kind::host_reduce_scatter, whole, root_local,
                            {.destination = Place::work, .finish = false}));
  if (grid.local == root_local)
    run(subgroup_step_of_root(Subgroup::rail, Step::Kind::host_reduce_scatter, whole, root_domain,
                              {.source = Place::work}));
}

/// Emits a barrier: inside every domain, then between one rank of each domain, then inside every domain again.
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
