// The interface of an algorithm: a name, and a function that emits the Steps of a rank. A Step is one action of a rank
// (step.hpp).
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

/// View of the topology by one rank: all that an algorithm may know about ranks and hosts.
///
/// Built once per communicator. The spans of `world` and `grid` point into this object.
class RankView {
 public:
  RankView(const Topology&, Rank self);
  RankView(const RankView&) = delete;
  RankView& operator=(const RankView&) = delete;

  /// Turns this view into the view of `rank`. One object can therefore serve all ranks, one after another.
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
  /// Grid of the only host's NUMA domains, in place of hosts. Empty if levels() of the topology is empty.
  Grid inner;
  std::span<Rank> scratch;  ///< scratch memory for a list of one rank per host
  /// Returns the ranks that perform a host Step of `subgroup` together with this rank.
  Peers members(Subgroup subgroup) const {
    return subgroup == Subgroup::host     ? grid.here()
           : subgroup == Subgroup::domain ? inner.here()
                                          : inner.rail().members;
  }
  /// Returns the index of this rank in members(subgroup).
  int index_in(Subgroup subgroup) const {
    return subgroup == Subgroup::host ? grid.local : subgroup == Subgroup::domain ? inner.local : inner.host;
  }
  int host_of(Rank rank) const { return of_hosts_.host_of[static_cast<std::size_t>(rank)]; }
  int local_of(Rank rank) const { return of_hosts_.local_of[static_cast<std::size_t>(rank)]; }
  /// Returns the number of the rank's domain. domain_of() and local_in_domain() require that `inner` is not empty.
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
  /// True if the codec of the request encodes all messages to fewer bytes. Each encoding rounds, so partial sums are
  /// not encoded. A rank that sends a result also stores it as the receivers will decode it, so that all ranks have
  /// equal bits.
  bool coded = false;
  /// Restricts an all-reduce of `hierarchical` on several hosts to its exchange between hosts. A rail is one rank of
  /// every host, and a slice is its share of the vector. The rank then reduces its slice along its rail, from output to
  /// output. A device path, which handles buffers of GPUs, does the work inside each host.
  bool inter_host_only = false;

  /// Returns whether ranks send values unreduced to the owner of a part, which adds them.
  constexpr bool needs_unreduced_exchange() const { return partial_sums != PartialSums::allowed; }
};

/// Arguments of one round of a call. A round handles one segment of each part of the vector (parts.hpp).
struct RoundArgs : CollectiveSpec {
  /// Parts of the vector: one per rank if Algorithm::by_part returns true, otherwise a single part.
  Parts parts;
  Rank root = 0;
  /// Parts that the peers hold for this rank, if each rank has different data for each peer. Otherwise empty.
  Parts incoming = {};
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
  /// Returns whether the algorithm can do the collective on the topology. It returns false if it would only emit the
  /// Steps of another algorithm. Null: always true.
  bool (*possible)(const CollectiveSpec&, const Topology&);
  std::string_view needs;  ///< requirement of `possible` in words, for error messages
  /// Returns true if a round handles one segment of every rank's part. If false, a round handles one segment of the
  /// whole vector.
  bool (*by_part)(const CollectiveSpec&, const Topology&);
  /// Returns n such that no message is longer than 1/n of a segment.
  int (*pieces)(const CollectiveSpec&, const Topology&);
  /// Returns the number of depths of a round, at least 1. A depth is a position in a round (schedule.hpp).
  int (*depths)(const CollectiveSpec&, const Topology&);
  void (*emit)(const RankView&, const RoundArgs&, StepSink&);
  /// Returns true if a message may hold the parts of several ranks, up to the whole vector. The vector must then fit in
  /// one message. Null: false.
  bool (*in_one_message)(const CollectiveSpec&) = nullptr;
  /// Returns the number of slices: an all-reduce on several hosts divides the vector among so many ranks of each host.
  /// Null: the algorithm does not divide it.
  int (*slices)(const Topology&) = nullptr;
};

/// Returns all algorithms. If estimates are equal, the earlier algorithm is preferred.
std::span<const Algorithm> algorithms();

}  // namespace collectives
