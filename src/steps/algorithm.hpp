// One row of the table of algorithms: a name, and the function that emits a rank's Steps for any collective.
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

/// Where one rank stands among all: what algorithms may know of the topology. Built once per communicator; the spans of
/// `world` and `grid` point into it.
class RankView {
 public:
  RankView(const Topology&, Rank self);
  RankView(const RankView&) = delete;
  RankView& operator=(const RankView&) = delete;

  /// Turns this seat into another rank's: it holds lists of all ranks, and one serves them all in turn.
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
  Grid inner;               ///< the domains of the one host there is, in place of hosts; none where levels() is empty
  std::span<Rank> scratch;  ///< room for one rank per host
  /// Those who perform a host Step with this rank, and its number among them.
  Peers members(Subgroup subgroup) const {
    return subgroup == Subgroup::host     ? grid.here()
           : subgroup == Subgroup::domain ? inner.here()
                                          : inner.rail().members;
  }
  int index_in(Subgroup subgroup) const {
    return subgroup == Subgroup::host ? grid.local : subgroup == Subgroup::domain ? inner.local : inner.host;
  }
  int host_of(Rank rank) const { return of_hosts_.host_of[static_cast<std::size_t>(rank)]; }
  int local_of(Rank rank) const { return of_hosts_.local_of[static_cast<std::size_t>(rank)]; }
  /// With domains.
  int domain_of(Rank rank) const { return of_domains_.host_of[static_cast<std::size_t>(rank)]; }
  int local_in_domain(Rank rank) const { return of_domains_.local_of[static_cast<std::size_t>(rank)]; }

 private:
  /// The ranks of a grid: of each host, and of each rail.
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

/// What kind of thing the Steps are to achieve.
struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  PartialSums partial_sums = PartialSums::allowed;
  /// Messages are coded: what a rank hands to others it keeps as they will see it, and partial sums are not coded, as
  /// each coding rounds.
  bool coded = false;
  /// Of an all-reduce by `hierarchical` on several hosts, only what goes along the rails: this rank's slice, from
  /// output to output. What happens inside hosts is done elsewhere.
  bool inter_host_only = false;

  /// Contributions meet at their owner in messages.
  constexpr bool needs_unreduced_exchange() const { return partial_sums != PartialSums::allowed; }
};

/// The same of one round of a call.
struct RoundArgs : CollectiveSpec {
  /// By part (see Algorithm::by_part): one part per rank. Otherwise one part, the vector.
  Parts parts;
  Rank root = 0;
  Parts incoming = {};  ///< where every rank has something else for every other: what they have for this one
};

/// Receives the Steps of a rank, in order.
class StepSink {
 public:
  virtual void operator()(const Step&) = 0;

 protected:
  ~StepSink() = default;
};

struct Algorithm {
  std::string_view backend;
  std::string_view name;
  /// Whether it can be done there at all, in a way of its own; null: always.
  bool (*possible)(const CollectiveSpec&, const Topology&);
  std::string_view needs;  ///< for that, in words
  /// Whether the rounds walk along the parts of all ranks at once, or along the whole vector.
  bool (*by_part)(const CollectiveSpec&, const Topology&);
  /// Into how many messages, at least, one segment of a round is divided.
  int (*pieces)(const CollectiveSpec&, const Topology&);
  /// The depths of its Steps (schedule.hpp), at least 1.
  int (*depths)(const CollectiveSpec&, const Topology&);
  void (*emit)(const RankView&, const RoundArgs&, StepSink&);
  /// Messages hold parts of several ranks, up to the whole vector: for vectors that fit in one. Null: never.
  bool (*in_one_message)(const CollectiveSpec&) = nullptr;
  /// Of an all-reduce on several hosts: among how many of its ranks a host divides the vector. Null: it does not.
  int (*slices)(const Topology&) = nullptr;
};

/// All algorithms, in order of preference when estimates are equal.
std::span<const Algorithm> algorithms();

}  // namespace collectives
