// Table of all algorithms, from which the planner chooses one for each new kind of call.
//
// Each row of the table is one algorithm. A row holds the name of the algorithm, some properties, and a function that
// emits the Steps of a rank. A Step is one action of a rank, such as to receive a message and add it. These functions
// stand above the table. They call the functions in the folders ring, reduce_to_one and hierarchical, which emit the
// Steps.
//
// A backend is a family of algorithms, such as `ring`. A backend need not support every collective. Every backend of
// the table supports the six collectives of performs_common(), such as all-reduce. Backend `nccl` is not in the table,
// because the NCCL library performs the calls of this backend without Steps.
#include <algorithm>
#include <functional>
#include <numeric>
#include <type_traits>

#include "core/collective.hpp"
#include "hierarchical/all_to_all.hpp"
#include "hierarchical/between.hpp"
#include "hierarchical/leaders.hpp"
#include "hierarchical/rooted.hpp"
#include "hierarchical/two_level.hpp"
#include "reduce_to_one/reduce_to_one.hpp"
#include "ring/ring.hpp"
#include "steps/algorithm.hpp"
#include "steps/direct_exchange.hpp"

namespace collectives {

RankView::Members::Members(const std::vector<std::vector<Rank>>& members, std::size_t ranks)
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

Grid RankView::Members::seen_by(Rank self, Peers numbers) const {
  const auto at = static_cast<std::size_t>(self);
  return {hosts, rails, numbers, host_of[at], local_of[at]};
}

RankView::RankView(const Topology& topology, Rank self)
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

void emit_ring(const RankView& view, const RoundArgs& args, StepSink& run) {
  const RankGroup& world = view.world;
  Descending deeper{run};
  switch (args.collective) {
    case Collective::all_reduce:
    case Collective::barrier:  // an all-reduce without data: no rank leaves it before all ranks have entered
      if (args.needs_unreduced_exchange()) {
        direct_exchange::reduce_scatter(world, args.parts, {}, run);
        return ring::all_gather(world, args.parts, Place::output, run);
      }
      ring::reduce_scatter(world, args.parts, {}, deeper);
      return ring::all_gather(world, args.parts, Place::output, deeper);
    case Collective::reduce_scatter:
      return args.needs_unreduced_exchange() ? direct_exchange::reduce_scatter(world, args.parts, {}, run)
                                             : ring::reduce_scatter(world, args.parts, {}, deeper);
    case Collective::all_gather: return ring::all_gather(world, args.parts, Place::input, deeper);
    case Collective::broadcast: return ring::broadcast(world, args.root, args.parts[0], run);
    case Collective::reduce:
      return args.needs_unreduced_exchange() ? direct_exchange::reduce(world, args.root, args.parts[0], {}, run)
                                             : ring::reduce(world, args.root, args.parts[0], {}, run);
    case Collective::scan:
    case Collective::exclusive_scan: {
      const bool exclusive = args.collective == Collective::exclusive_scan;
      return args.needs_unreduced_exchange() ? direct_exchange::scan(world, exclusive, args.parts[0], run)
                                             : ring::scan(world, exclusive, args.parts[0], run);
    }
    default: return;  // the backend does not support the collective
  }
}

template <class Shape>
void emit_reduce_to_one(const RankView& view, const RoundArgs& args, StepSink& run) {
  const Shape shape{view.world, args.root};
  const reduce_to_one::Star unsummed{view.world, args.root};
  switch (args.collective) {
    case Collective::all_reduce:
    case Collective::barrier:
      if (!args.needs_unreduced_exchange()) return reduce_to_one::all_reduce(shape, args.parts[0], {}, run);
      unsummed.reduce(args.parts[0], {}, run);
      return shape.broadcast(args.parts[0], Place::output, run);
    case Collective::reduce_scatter:
      return args.needs_unreduced_exchange() ? reduce_to_one::reduce_scatter(unsummed, args.parts, {}, run)
                                             : reduce_to_one::reduce_scatter(shape, args.parts, {}, run);
    case Collective::all_gather: return reduce_to_one::all_gather(shape, args.parts, Place::input, run);
    case Collective::broadcast: return shape.broadcast(args.parts[0], Place::input, run);
    case Collective::reduce:
      return args.needs_unreduced_exchange() ? unsummed.reduce(args.parts[0], {}, run)
                                             : shape.reduce(args.parts[0], {}, run);
    case Collective::gather: return direct_exchange::gather(view.world, args.root, args.parts, run);
    case Collective::scatter: return direct_exchange::scatter(view.world, args.root, args.parts, run);
    default: return;  // the backend does not support the collective
  }
}

/// Rails that exchange messages between hosts in an all-reduce or a broadcast. A rail consists of one rank of every
/// host, all with the same local number. `all`: each rail exchanges its slice of the vector. `one`: the first rail
/// exchanges the whole vector.
enum class Rails : std::uint8_t { all, one };

/// Whether reduce-scatter and all-gather use the functions of hierarchical/leaders.hpp. `Between` is the algorithm
/// between hosts. Only rows with recursive halving use these functions.
template <class Between>
constexpr bool kScatters = std::is_same_v<Between, hierarchical::Halving>;

template <class Between, Rails rails>
void emit_hierarchical(const RankView& view, const RoundArgs& args, StepSink& run) {
  const Grid& grid = view.grid;
  const int slices = rails == Rails::all ? grid.slices() : 1;
  // On several hosts without partial sums, each contribution must go directly to the rank that adds it. On one host,
  // that rank reads every contribution in shared memory in any case.
  const bool flat = args.partial_sums == PartialSums::forbidden && grid.host_count() > 1;
  const int root_host = view.host_of(args.root), root_local = view.local_of(args.root);
  switch (args.collective) {
    case Collective::all_reduce:
      if (args.inter_host_only && args.partial_sums == PartialSums::intra_host)
        return hierarchical::Unsummed<Between>::all_reduce(grid.rail(), args.parts[0], {.source = Place::output}, run);
      if (args.inter_host_only) return Between::all_reduce(grid.rail(), args.parts[0], {.source = Place::output}, run);
      if (args.partial_sums == PartialSums::intra_host)
        return hierarchical::all_reduce<hierarchical::Unsummed<Between>>(grid, slices, args.parts[0], run);
      if (!flat) return hierarchical::all_reduce<Between>(grid, slices, args.parts[0], run);
      direct_exchange::reduce_scatter(view.world, args.parts, {}, run);
      return hierarchical::all_gather(grid, args.parts, Place::output, AtDepth{run, 0});
    case Collective::reduce_scatter:
      if constexpr (kScatters<Between>) return hierarchical::leaders::reduce_scatter(grid, args.parts, run);
      return flat ? direct_exchange::reduce_scatter(view.world, args.parts, {}, run)
                  : hierarchical::reduce_scatter(grid, args.parts, view.scratch, run);
    case Collective::all_gather:
      if constexpr (kScatters<Between>) return hierarchical::leaders::all_gather(grid, args.parts, run);
      return hierarchical::all_gather(grid, args.parts, Place::input, run);
    case Collective::broadcast:
      return hierarchical::broadcast<Between>(grid, slices, root_host, root_local, args.parts[0], args.coded, run);
    case Collective::reduce:
      return flat ? direct_exchange::reduce(view.world, args.root, args.parts[0], {}, run)
                  : hierarchical::reduce(grid, root_host, root_local, args.parts[0], view.scratch, run);
    case Collective::barrier:
      if constexpr (requires { Between::barrier(grid.rail(), run); }) return hierarchical::barrier<Between>(grid, run);
      return hierarchical::barrier<hierarchical::OneShot>(grid, run);
    case Collective::gather: return hierarchical::gather(grid, root_host, root_local, args.parts, run);
    case Collective::scatter: return hierarchical::scatter(grid, root_host, root_local, args.parts, run);
    case Collective::scan:
    case Collective::exclusive_scan: {
      const bool exclusive = args.collective == Collective::exclusive_scan;
      return flat ? direct_exchange::scan(view.world, exclusive, args.parts[0], run)
                  : hierarchical::scan(grid, view.world, exclusive, args.parts[0], run);
    }
    default: return;  // the backend does not support the collective
  }
}

void emit_two_level(const RankView& view, const RoundArgs& args, StepSink& run) {
  const Grid& grid = view.inner;
  const int root_domain = view.domain_of(args.root), root_local = view.local_in_domain(args.root);
  switch (args.collective) {
    case Collective::all_reduce: return two_level::all_reduce(grid, args.parts[0], run);
    case Collective::reduce_scatter: return two_level::reduce_scatter(grid, args.parts, run);
    case Collective::all_gather: return two_level::all_gather(grid, args.parts, run);
    case Collective::broadcast: return two_level::broadcast(grid, root_domain, root_local, args.parts[0], run);
    case Collective::reduce: return two_level::reduce(grid, root_domain, root_local, args.parts[0], run);
    case Collective::barrier: return two_level::barrier(grid, run);
    default: return;  // the backend does not support the collective
  }
}

/// Performs gather and scatter along a tree of leaders.
void emit_hierarchical_tree(const RankView& view, const RoundArgs& args, StepSink& run) {
  const int root_host = view.host_of(args.root), root_local = view.local_of(args.root);
  return args.collective == Collective::gather
             ? hierarchical::tree::gather(view.grid, root_host, root_local, args.parts, run)
             : hierarchical::tree::scatter(view.grid, root_host, root_local, args.parts, run);
}

bool is_rooted(Collective collective) { return collective == Collective::gather || collective == Collective::scatter; }
/// Returns whether a vector has a part for each rank.
bool has_parts(const CollectiveSpec& spec) {
  return spec.collective == Collective::reduce_scatter || spec.collective == Collective::all_gather ||
         is_rooted(spec.collective);
}
/// Returns whether every rank both has a part and needs those of all ranks, or their contributions.
bool scatters_or_gathers(const CollectiveSpec& spec) {
  return spec.collective == Collective::reduce_scatter || spec.collective == Collective::all_gather;
}

int hosts_of(const Topology& topology) { return static_cast<int>(topology.hosts.size()); }
int rails_of(const Topology& topology) {
  return static_cast<int>(std::ranges::min(topology.hosts, {}, &std::vector<Rank>::size).size());
}
/// Returns whether every rank sends its contributions directly to the ranks that add them, also between hosts.
bool flat(const CollectiveSpec& spec, const Topology& topology) {
  return spec.partial_sums == PartialSums::forbidden && !topology.one_host();
}
bool hosts_have_one_rank(const Topology& topology) { return topology.ranks() == hosts_of(topology); }

/// Returns the row of a hierarchical algorithm. Its all-reduce and broadcast use shared memory inside each host, and
/// the algorithm `Between` between hosts.
///
/// The first row, Ring, handles every collective on every topology. The other rows handle only the calls for which
/// `possible` returns true. Among the other rows, only those with Halving handle reduce-scatter and all-gather. Only
/// `hierarchical_doubling` handles barriers.
template <class Between, Rails rails>
constexpr Algorithm hierarchical_row(std::string_view name,
                                     bool (*possible)(const CollectiveSpec&, const Topology&) = nullptr,
                                     std::string_view needs = {}, bool (*performs)(Collective) = nullptr) {
  return {"hierarchical",
          name,
          possible,
          needs,
          [](const CollectiveSpec& spec, const Topology& topology) {
            return has_parts(spec) || (spec.collective == Collective::all_reduce && flat(spec, topology));
          },
          [](const CollectiveSpec& spec, const Topology& topology) {
            if (has_parts(spec) || is_scan(spec.collective) || flat(spec, topology) || topology.one_host()) return 1;
            const int hosts = hosts_of(topology);
            const int between = spec.collective != Collective::all_reduce ? 1
                                : spec.partial_sums == PartialSums::intra_host
                                    ? hierarchical::Unsummed<Between>::pieces(hosts)
                                    : Between::pieces(hosts);
            return between * (rails == Rails::all ? rails_of(topology) : 1);
          },
          [](const CollectiveSpec& spec, const Topology& topology) {
            if (topology.one_host()) return 1;
            const int hosts = hosts_of(topology);
            if (spec.collective == Collective::all_reduce && !flat(spec, topology))
              return 2 + (spec.partial_sums == PartialSums::intra_host ? hierarchical::Unsummed<Between>::depths(hosts)
                                                                       : Between::depths(hosts));
            if (scatters_or_gathers(spec) && !flat(spec, topology))
              return kScatters<Between> ? 1 : 1 + kRoundsOnTheWire;
            return spec.collective == Collective::broadcast ? 2 : 1;
          },
          emit_hierarchical<Between, rails>,
          kScatters<Between> ? &scatters_or_gathers : nullptr,
          [](const Topology& topology) { return rails == Rails::all ? rails_of(topology) : 1; },
          performs};
}
bool has_alternatives(const CollectiveSpec& spec, const Topology& topology) {
  return !topology.one_host() && ((spec.collective == Collective::all_reduce && !flat(spec, topology)) ||
                                  spec.collective == Collective::broadcast);
}
bool has_leaders(const CollectiveSpec& spec, const Topology& topology) {
  return has_alternatives(spec, topology) && !hosts_have_one_rank(topology);
}
/// Returns whether doubling or halving applies. Requires more than two hosts: with two, the one-shot algorithm needs
/// fewer messages one after another. Also requires that partial sums may be sent, because hosts send sums of several
/// hosts in these algorithms.
template <bool (*possible)(const CollectiveSpec&, const Topology&)>
bool of_many(const CollectiveSpec& spec, const Topology& topology) {
  return possible(spec, topology) && hosts_of(topology) > 2 && !spec.needs_unreduced_exchange();
}

/// Returns whether the ranks of each host have consecutive numbers, and hosts follow one another.
bool numbered_by_host(const Topology& topology) {
  const auto before = [](const std::vector<Rank>& a, const std::vector<Rank>& b) { return a.back() < b.front(); };
  return std::ranges::adjacent_find(topology.hosts, std::not_fn(before)) == topology.hosts.end();
}

/// Returns whether hierarchical/leaders.hpp can perform the collective. One message then holds the parts of several
/// hosts. The ranks must be numbered host by host and parts must lie one after another, so that these parts form one
/// range. A codec would encode such a
/// message differently from single parts. Two hosts of one rank each have no parts to combine in a message.
bool leaders_scatter(const CollectiveSpec& spec, const Topology& topology) {
  return scatters_or_gathers(spec) && !spec.needs_unreduced_exchange() && !spec.coded && !spec.displaced &&
         hosts_of(topology) > (hosts_have_one_rank(topology) ? 2 : 1) && numbered_by_host(topology);
}
bool can_double(const CollectiveSpec& spec, const Topology& topology) {
  return of_many<has_alternatives>(spec, topology) ||
         (spec.collective == Collective::barrier && hosts_of(topology) > 2);
}
bool can_halve(const CollectiveSpec& spec, const Topology& topology) {
  return of_many<has_alternatives>(spec, topology) ||
         (leaders_scatter(spec, topology) && hosts_have_one_rank(topology));
}
bool leaders_can_halve(const CollectiveSpec& spec, const Topology& topology) {
  return leaders_scatter(spec, topology) && !hosts_have_one_rank(topology);
}

int one_depth(const CollectiveSpec&, const Topology&) { return 1; }
int one_piece(const CollectiveSpec&, const Topology&) { return 1; }
bool always(const CollectiveSpec&, const Topology&) { return true; }
bool always_in_one_message(const CollectiveSpec&) { return true; }

constexpr bool is_all_to_all(Collective collective) { return collective == Collective::all_to_all; }

/// Returns whether ranks of a host can put their blocks into one message. A codec would encode such a message
/// differently from single blocks.
bool can_pool(const CollectiveSpec& spec, const Topology& topology) {
  return !topology.one_host() && !hosts_have_one_rank(topology) && numbered_by_host(topology) && !spec.coded;
}

void emit_pooled(const RankView& view, const RoundArgs& args, StepSink& run) {
  hierarchical::Pooled::all_to_all(view, args, run);
}
void emit_pairwise(const RankView& view, const RoundArgs& args, StepSink& run) {
  hierarchical::Pairwise::all_to_all(view, args, run);
}

constexpr Algorithm kAlgorithms[] = {
    hierarchical_row<hierarchical::Ring, Rails::all>("hierarchical", nullptr, {},
                                                     [](Collective collective) {
                                                       return performs_common(collective) || is_rooted(collective) ||
                                                              is_scan(collective);
                                                     }),
    hierarchical_row<hierarchical::OneShot, Rails::all>("hierarchical_one_shot", has_alternatives,
                                                        "several hosts, and is for all_reduce and broadcast"),
    hierarchical_row<hierarchical::OneShot, Rails::one>(
        "hierarchical_leaders", has_leaders, "several hosts with several ranks, and is for all_reduce and broadcast"),
    hierarchical_row<hierarchical::Doubling, Rails::all>(
        "hierarchical_doubling", can_double, "three hosts or more, and is for all_reduce, broadcast and barrier"),
    hierarchical_row<hierarchical::Doubling, Rails::one>(
        "hierarchical_leaders_doubling", of_many<has_leaders>,
        "three hosts or more with several ranks, and is for all_reduce and broadcast"),
    hierarchical_row<hierarchical::Halving, Rails::all>(
        "hierarchical_halving", can_halve,
        "three hosts or more, and is for all_reduce and broadcast, and on hosts of one rank for reduce_scatter and "
        "all_gather of a vector that fits in a message"),
    hierarchical_row<hierarchical::Halving, Rails::one>(
        "hierarchical_leaders_halving", leaders_can_halve,
        "hosts with several ranks, numbered host by host, and is for reduce_scatter and all_gather of a vector that "
        "fits in a message"),
    {"hierarchical", "hierarchical_two_level",
     [](const CollectiveSpec& spec, const Topology& topology) {
       return !spec.needs_unreduced_exchange() && !topology.levels().empty();
     },
     "several domains with equally many ranks, at least two",
     [](const CollectiveSpec& spec, const Topology&) { return scatters_or_gathers(spec); },
     [](const CollectiveSpec&, const Topology&) { return 1; }, one_depth, emit_two_level},
    {.backend = "hierarchical",
     .name = "hierarchical_pairwise",
     .possible = nullptr,
     .needs = "",
     .by_part = always,
     .pieces = one_piece,
     .depths = [](const CollectiveSpec&,
                  const Topology& topology) { return hierarchical::Pairwise::depths(topology.ranks()); },
     .emit = emit_pairwise,
     .performs = is_all_to_all},
    {.backend = "hierarchical",
     .name = "hierarchical_pooled",
     .possible = can_pool,
     .needs = "several hosts with several ranks, numbered host by host, and is for all_to_all of blocks that fit in a "
              "message for each pair of hosts",
     .by_part = always,
     .pieces = one_piece,
     .depths = one_depth,
     .emit = emit_pooled,
     .in_one_message = always_in_one_message,
     .performs = is_all_to_all,
     .longest_message = hierarchical::Pooled::longest_message},
    {"hierarchical", "hierarchical_tree",
     [](const CollectiveSpec&, const Topology& topology) {
       return hosts_of(topology) > 1 && (hosts_of(topology) > 2 || !hosts_have_one_rank(topology)) &&
              numbered_by_host(topology);
     },
     "several hosts, numbered host by host, and a vector that fits in a message", always, one_piece, one_depth,
     emit_hierarchical_tree, always_in_one_message, nullptr, is_rooted},
    {"ring", "ring", nullptr, "",
     [](const CollectiveSpec& spec, const Topology&) {
       return scatters_or_gathers(spec) || spec.collective == Collective::all_reduce ||
              spec.collective == Collective::barrier;
     },
     [](const CollectiveSpec&, const Topology&) { return 1; },
     [](const CollectiveSpec& spec, const Topology& topology) {
       if (spec.needs_unreduced_exchange() && spec.collective != Collective::all_gather) return 1;
       return spec.collective == Collective::all_reduce || spec.collective == Collective::barrier ? 2 * topology.ranks()
              : scatters_or_gathers(spec)                                                         ? topology.ranks()
                                                                                                  : 1;
     },
     emit_ring, nullptr, nullptr,
     [](Collective collective) { return performs_common(collective) || is_scan(collective); }},
    {"reduce_to_one", "reduce_to_one_direct", nullptr, "",
     [](const CollectiveSpec& spec, const Topology&) { return has_parts(spec); }, one_piece, one_depth,
     emit_reduce_to_one<reduce_to_one::Star>, nullptr, nullptr,
     [](Collective collective) { return performs_common(collective) || is_rooted(collective); }},
    {"reduce_to_one", "reduce_to_one_tree", nullptr, "",
     [](const CollectiveSpec& spec, const Topology&) { return scatters_or_gathers(spec); },
     [](const CollectiveSpec&, const Topology&) { return 1; }, one_depth, emit_reduce_to_one<reduce_to_one::Tree>},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace collectives
