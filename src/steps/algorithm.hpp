// Interface of an algorithm, the way in which ranks perform a collective. An algorithm has a name, a function that
// emits the Steps of one rank, and some properties. A Step is one action of a rank. It takes values, may combine them,
// may store the result, and may send it (step.hpp).
//
// The table of all algorithms is in planning/algorithm_table.cpp.
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

/// Rank view: the ranks and hosts of a communicator, and the position of one rank among them. The function that emits
/// Steps gets no other information about ranks and hosts.
///
/// A communicator keeps the rank view of its own rank. The fields `world`, `grid` and `inner` contain spans, which
/// refer to memory of the RankView itself.
class RankView {
 public:
  RankView(const Topology&, Rank self);
  RankView(const RankView&) = delete;
  RankView& operator=(const RankView&) = delete;

  /// Makes this the view of `rank`. One object can therefore serve all ranks, one after another.
  void rebind(Rank rank) noexcept {
    world.self = rank;
    grid.host = host_of(rank);
    grid.local = local_of(rank);
    if (inner.host_count() == 0) return;
    inner.host = domain_of(rank);
    inner.local = local_in_domain(rank);
  }

  RankGroup world;  ///< all ranks, in rank order
  Grid grid;        ///< ranks in rows and columns: a row holds the ranks of one host (grid.hpp)
  /// Grid inside the only host: a row holds the ranks of one NUMA domain. Empty if the topology has no domains.
  Grid inner;
  std::span<Rank> scratch;  ///< scratch memory for a list of one rank per host
  /// Returns the ranks that perform a host Step of `subgroup` together, including this rank. A host Step is a
  /// collective of ranks of one host through shared memory.
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
  /// Returns the number of the NUMA domain of a rank. domain_of() and local_in_domain() require that `inner` is not
  /// empty.
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

/// Properties of a collective that determine an algorithm's Steps.
struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  PartialSums partial_sums = PartialSums::allowed;
  /// True if a codec encodes all messages to fewer bytes. Each encoding rounds. A message never holds a
  /// partial sum of several hosts. It holds the values of one rank, the sum of one host, or a final result. A rank that
  /// sends a result also stores the values that the receivers will decode. All ranks thus have equal bits.
  bool coded = false;
  /// True: an all-reduce of backend `hierarchical` on several hosts performs only its exchange between hosts. The GPUs
  /// do the work inside each host. The exchange runs along rails. A rail is one rank of every host, all with the same
  /// local number. A slice is the range of the vector that one rail handles. The ranks of a rail all-reduce their
  /// slice. Values and result lie in the output buffers.
  bool inter_host_only = false;

  /// True if the parts have gaps between them or lie in another order than their ranks. A message then holds elements
  /// of one part only.
  bool displaced = false;

  /// Returns whether no message may hold a partial sum of several hosts. The owner of a part then adds the inputs of
  /// all ranks, or the sums of all hosts.
  constexpr bool needs_unreduced_exchange() const { return partial_sums != PartialSums::allowed; }
};

/// Arguments of one round of a call. A part is the range of the vector that one rank owns. A round handles one segment
/// of each part (parts.hpp).
struct RoundArgs : CollectiveSpec {
  /// Parts of the vector: one per rank if Algorithm::by_part returns true, otherwise a single part.
  Parts parts;
  Rank root = 0;
  /// Parts that this rank receives from its peers in the all-to-all of a sparse exchange. Otherwise empty.
  Parts incoming = {};
  /// Ranges of an all-to-all whose pairs of ranks have counts of their own. `parts` are then the blocks that this rank
  /// sends. Null: all blocks are equally long.
  const Blocks* blocks = nullptr;
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
  /// Returns whether the algorithm can perform the collective on the topology. Also returns false if the Steps would
  /// equal those of another algorithm. Null: always true.
  bool (*possible)(const CollectiveSpec&, const Topology&);
  std::string_view needs;  ///< requirement of `possible` in words, for error messages
  /// Returns true if a round handles one segment of every rank's part. If false, a round handles one segment of the
  /// whole vector.
  bool (*by_part)(const CollectiveSpec&, const Topology&);
  /// Returns a number n such that no message is longer than 1/n of a segment.
  int (*pieces)(const CollectiveSpec&, const Topology&);
  /// Returns the number of depths per round, at least 1. A depth is a position in a round (schedule.hpp).
  int (*depths)(const CollectiveSpec&, const Topology&);
  void (*emit)(const RankView&, const RoundArgs&, StepSink&);
  /// Returns true if one message may hold the parts of several ranks, at most the whole vector. The algorithm is then
  /// used only if the vector fits into one message. Null: false.
  bool (*in_one_message)(const CollectiveSpec&) = nullptr;
  /// Returns the number of slices into which an all-reduce on several hosts cuts the vector. Each slice belongs to one
  /// rank of each host. Null: the algorithm does not cut the vector.
  int (*slices)(const Topology&) = nullptr;
  /// Returns whether the algorithm has a form of the collective. Null: performs_common() answers.
  bool (*performs)(Collective) = nullptr;
  /// Returns the number of elements of the longest message if `in_one_message` returns true. `part`: elements of the
  /// longest part. Null: the message may hold the whole vector.
  std::size_t (*longest_message)(const Topology&, std::size_t part) = nullptr;
};

/// Returns whether the collective is one of those that every backend with Steps performs.
constexpr bool performs_common(Collective collective) {
  return static_cast<std::size_t>(collective) <= static_cast<std::size_t>(Collective::barrier);
}
/// Returns whether the algorithm has a form of the collective.
constexpr bool performs(const Algorithm& algorithm, Collective collective) {
  return algorithm.performs == nullptr ? performs_common(collective) : algorithm.performs(collective);
}

/// Returns all algorithms. If two have equal cost estimates, the planner prefers the earlier one.
std::span<const Algorithm> algorithms();

}  // namespace collectives
