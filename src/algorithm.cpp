// The registry: every backend does every collective.
#include "algorithm.hpp"

#include <numeric>

#include "direct.hpp"
#include "hierarchical/two_level.hpp"
#include "reduce_to_one/reduce_to_one.hpp"
#include "ring/ring.hpp"

namespace collectives {

Seat::Members::Members(const std::vector<std::vector<Rank>>& members, std::size_t ranks)
    : host_of(ranks), local_of(ranks) {
  std::size_t smallest = members.empty() ? 0 : ranks;
  by_host.reserve(ranks);
  for (std::size_t h = 0; h < members.size(); ++h) {
    const auto& host = members[h];
    smallest = std::min(smallest, host.size());
    for (std::size_t local = 0; local < host.size(); ++local) {
      host_of[static_cast<std::size_t>(host[local])] = static_cast<int>(h);
      local_of[static_cast<std::size_t>(host[local])] = static_cast<int>(local);
    }
    const std::size_t first = by_host.size();
    by_host.insert(by_host.end(), host.begin(), host.end());
    hosts.emplace_back(by_host.data() + first, host.size());
  }
  by_rail.reserve(smallest * members.size());
  for (std::size_t slice = 0; slice < smallest; ++slice) {
    const std::size_t first = by_rail.size();
    for (const auto& host : members) by_rail.push_back(host[slice]);
    rails.emplace_back(by_rail.data() + first, members.size());
  }
}

hierarchical::Grid Seat::Members::seen_by(Rank self, Peers numbers) const {
  const auto at = static_cast<std::size_t>(self);
  return {hosts, rails, numbers, host_of[at], local_of[at]};
}

Seat::Seat(const Topology& topology, Rank self)
    : ranks_(static_cast<std::size_t>(topology.ranks())),
      scratch_(topology.hosts.size()),
      of_hosts_(topology.hosts, ranks_.size()),
      of_domains_(topology.levels(), ranks_.size()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  world = {ranks_, self};
  grid = of_hosts_.seen_by(self, ranks_);
  if (!of_domains_.hosts.empty()) inner = of_domains_.seen_by(self, ranks_);
  scratch = scratch_;
}

namespace {

void emit_ring(const Seat& seat, const Task& task, StepSink& run) {
  const Circle& world = seat.world;
  switch (task.collective) {
    case Collective::all_reduce:
    case Collective::barrier:  // an all-reduce of nothing: its messages still go all the way around
      if (task.direct)
        direct::reduce_scatter(world, task.parts, {}, run);
      else
        ring::reduce_scatter(world, task.parts, {}, run);
      return ring::all_gather(world, task.parts, Place::output, run);
    case Collective::reduce_scatter:
      return task.direct ? direct::reduce_scatter(world, task.parts, {}, run)
                         : ring::reduce_scatter(world, task.parts, {}, run);
    case Collective::all_gather: return ring::all_gather(world, task.parts, Place::input, run);
    case Collective::broadcast: return ring::broadcast(world, task.root, task.parts[0], run);
    case Collective::reduce:
      return task.direct ? direct::reduce(world, task.root, task.parts[0], {}, run)
                         : ring::reduce(world, task.root, task.parts[0], {}, run);
  }
}

template <class Shape>
void emit_reduce_to_one(const Seat& seat, const Task& task, StepSink& run) {
  const Shape shape{seat.world, task.root};
  const reduce_to_one::Direct unsummed{seat.world, task.root};
  switch (task.collective) {
    case Collective::all_reduce:
    case Collective::barrier:
      if (!task.direct) return reduce_to_one::all_reduce(shape, task.parts[0], {}, run);
      unsummed.reduce(task.parts[0], {}, run);
      return shape.broadcast(task.parts[0], Place::output, run);
    case Collective::reduce_scatter:
      return task.direct ? reduce_to_one::reduce_scatter(unsummed, task.parts, {}, run)
                         : reduce_to_one::reduce_scatter(shape, task.parts, {}, run);
    case Collective::all_gather: return reduce_to_one::all_gather(shape, task.parts, Place::input, run);
    case Collective::broadcast: return shape.broadcast(task.parts[0], Place::input, run);
    case Collective::reduce:
      return task.direct ? unsummed.reduce(task.parts[0], {}, run) : shape.reduce(task.parts[0], {}, run);
  }
}

void emit_hierarchical(const Seat& seat, const Task& task, StepSink& run) {
  const hierarchical::Grid& grid = seat.grid;
  // Inside one host every contribution meets its owner unsummed anyway; between hosts the direct exchange is flat.
  const bool flat = task.direct && grid.host_count() > 1;
  const int root_host = seat.host_of(task.root), root_local = seat.local_of(task.root);
  switch (task.collective) {
    case Collective::all_reduce:
      if (!flat) return hierarchical::all_reduce(grid, task.parts[0], run);
      direct::reduce_scatter(seat.world, task.parts, {}, run);
      return hierarchical::all_gather(grid, task.parts, Place::output, run);
    case Collective::reduce_scatter:
      return flat ? direct::reduce_scatter(seat.world, task.parts, {}, run)
                  : hierarchical::reduce_scatter(grid, task.parts, seat.scratch, run);
    case Collective::all_gather: return hierarchical::all_gather(grid, task.parts, Place::input, run);
    case Collective::broadcast: return hierarchical::broadcast(grid, root_host, root_local, task.parts[0], run);
    case Collective::reduce:
      return flat ? direct::reduce(seat.world, task.root, task.parts[0], {}, run)
                  : hierarchical::reduce(grid, root_host, root_local, task.parts[0], seat.scratch, run);
    case Collective::barrier: return hierarchical::barrier(grid, run);
  }
}

void emit_two_level(const Seat& seat, const Task& task, StepSink& run) {
  const hierarchical::Grid& grid = seat.inner;
  const int root_domain = seat.domain_of(task.root), root_local = seat.local_in_domain(task.root);
  switch (task.collective) {
    case Collective::all_reduce: return two_level::all_reduce(grid, task.parts[0], run);
    case Collective::reduce_scatter: return two_level::reduce_scatter(grid, task.parts, run);
    case Collective::all_gather: return two_level::all_gather(grid, task.parts, run);
    case Collective::broadcast: return two_level::broadcast(grid, root_domain, root_local, task.parts[0], run);
    case Collective::reduce: return two_level::reduce(grid, root_domain, root_local, task.parts[0], run);
    case Collective::barrier: return two_level::barrier(grid, run);
  }
}

bool scatters_or_gathers(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}

constexpr Algorithm kAlgorithms[] = {
    {"hierarchical", "hierarchical", nullptr,
     [](Collective collective, bool direct, const Topology& topology) {
       return scatters_or_gathers(collective) ||
              (collective == Collective::all_reduce && direct && !topology.one_host());
     },
     [](Collective collective, bool direct, const Topology& topology) {
       if (scatters_or_gathers(collective) || direct || topology.one_host()) return 1;
       std::size_t slices = topology.hosts[0].size();
       for (const auto& host : topology.hosts) slices = std::min(slices, host.size());
       const bool cut_again = collective == Collective::all_reduce;
       return static_cast<int>(slices * (cut_again ? topology.hosts.size() : 1));
     },
     emit_hierarchical},
    {"hierarchical", "hierarchical_two_level",
     [](bool direct, const Topology& topology) { return !direct && !topology.levels().empty(); },
     [](Collective collective, bool, const Topology&) { return scatters_or_gathers(collective); },
     [](Collective, bool, const Topology&) { return 1; }, emit_two_level},
    {"ring", "ring", nullptr,
     [](Collective collective, bool, const Topology&) {
       return scatters_or_gathers(collective) || collective == Collective::all_reduce ||
              collective == Collective::barrier;
     },
     [](Collective, bool, const Topology&) { return 1; }, emit_ring},
    {"reduce_to_one", "reduce_to_one_direct", nullptr,
     [](Collective collective, bool, const Topology&) { return scatters_or_gathers(collective); },
     [](Collective, bool, const Topology&) { return 1; }, emit_reduce_to_one<reduce_to_one::Direct>},
    {"reduce_to_one", "reduce_to_one_tree", nullptr,
     [](Collective collective, bool, const Topology&) { return scatters_or_gathers(collective); },
     [](Collective, bool, const Topology&) { return 1; }, emit_reduce_to_one<reduce_to_one::Tree>},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace collectives
