// The interface of an algorithm: a name and a function that emits the Steps of a rank for any collective.
//
// The table of all algorithms is planning/algorithm_table.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "collectives/types.hpp"
#include "steps/grid.hpp"
#include "steps/rank_group.hpp"
#include "steps/step.hpp"

namespace collectives {

/// View of the topology by one rank: everything that an algorithm may know of it.
///
/// Built once per communicator. The spans of `world` and `grid` point into this object.
class RankView {
 public:
  RankView(const Topology&, Rank self);
  RankView(const RankView&) = delete;
  RankView& operator=(const RankView&) = delete;

  /// Turns this view into the view of another rank. One object holds the lists of all ranks and can serve them in turn.
  void rebind(Rank rank) noexcept {
    world.self = rank;
    grid.host = host_of(rank);
    grid.local = local_of(rank);
    if (inner.host_count() == 0) return;
    inner.host = domain_of(rank);
    inner.local = local_in_domain(rank);
  }

  RankGroup world;  ///< all ranks, in rank order
  Grid grid;
  Grid inner;  ///< the domains of the only host, in place of hosts; empty if levels() of the topology is empty
  std::span<Rank> scratch;  ///< scratch memory for one rank per host
  /// Returns the ranks that perform a host Step of `subgroup` together with this rank.
  Peers members(Subgroup subgroup) const {
    return subgroup == Subgroup::host     ? grid.here()
           : subgroup == Subgroup::domain ? inner.here()
                                          : inner.rail().members;
  }
  /// Returns the index of this rank among those ranks.
  int index_in(Subgroup subgroup) const {
    return subgroup == Subgroup::host ? grid.local : subgroup == Subgroup::domain ? inner.local : inner.host;
  }
  int host_of(Rank rank) const { return of_hosts_.host_of[static_cast<std::size_t>(rank)]; }
  int local_of(Rank rank) const { return of_hosts_.local_of[static_cast<std::size_t>(rank)]; }
  /// Requires a host with domains, as does local_in_domain().
  int domain_of(Rank rank) const { return of_domains_.host_of[static_cast<std::size_t>(rank)]; }
  int local_in_domain(Rank rank) const { return of_domains_.local_of[static_cast<std::size_t>(rank)]; }

 private:
  /// Lists of the ranks of each host and of each rail, to which the spans of a Grid point.
  struct Members {
    Members(const std::vector<std::vector<Rank>>& hosts, std::size_t ranks);
    std::vector<Rank> by_host, by_rail;
    std::vector<Peers> hosts, rails;
    std::vector<int> host_of, local_of;
    Grid seen_by(Rank self, Peers numbers) const;
  };
  std::vector<Rank> ranks_, scratch_;
  Members of_hosts_, of_domains_;
};

/// Properties of a collective that decide which Steps an algorithm emits.
struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  PartialSums partial_sums = PartialSums::allowed;
  /// Whether messages are coded by the codec of the request. Each coding rounds, so no partial sum is coded. A rank
  /// that sends a result stores it as the receivers will decode it.
  bool coded = false;
  /// Restricts an all-reduce of `hierarchical` on several hosts to its rails. The rank then reduces its slice along its
  /// rail, from output to output. A device path performs the part inside each host.
  bool inter_host_only = false;

  /// Returns whether unreduced contributions travel in messages to an owner, which adds them.
  constexpr bool needs_unreduced_exchange() const { return partial_sums != PartialSums::allowed; }
};

/// Arguments of one round of a call.
struct RoundArgs : CollectiveSpec {
  /// Parts of the vector: one per rank if Algorithm::by_part returns true, otherwise a single part.
  Parts parts;
  Rank root = 0;
  Parts incoming = {};  ///< if each rank has different data for each peer: the parts that the peers hold for this rank
};

/// Receives the Steps of a rank in order.
class StepSink {
 public:
  virtual void operator()(const Step&) = 0;

 protected:
  ~StepSink() = default;
};

struct Algorithm {
  std::string_view backend;
  std::string_view name;
  /// Returns whether the algorithm supports the collective on the topology, other than by the Steps of another
  /// algorithm. Null: always.
  bool (*possible)(const CollectiveSpec&, const Topology&);
  std::string_view needs;  ///< requirement of `possible` in words, for error messages
  /// Returns whether a round handles one segment of the part of every rank. Otherwise a round handles one segment of
  /// the whole vector.
  bool (*by_part)(const CollectiveSpec&, const Topology&);
  /// Returns the number of messages into which a segment of one round is divided, at least.
  int (*pieces)(const CollectiveSpec&, const Topology&);
  /// Returns the number of depths of a round (schedule.hpp), at least 1.
  int (*depths)(const CollectiveSpec&, const Topology&);
  void (*emit)(const RankView&, const RoundArgs&, StepSink&);
  /// Returns whether a message holds parts of several ranks, up to the whole vector. The vector must then fit in one
  /// message. Null: never.
  bool (*in_one_message)(const CollectiveSpec&) = nullptr;
  /// Returns the number of ranks of a host among which an all-reduce on several hosts divides the vector. Null: the
  /// algorithm does not divide it.
  int (*slices)(const Topology&) = nullptr;
};

/// Returns all algorithms. If estimates are equal, the earlier algorithm is preferred.
std::span<const Algorithm> algorithms();

}  // namespace collectives
