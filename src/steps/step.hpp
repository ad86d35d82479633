// Step: one action of a rank on a range of the vector of a call. An algorithm is a function that emits the Steps of one
// rank.
//
// A Step takes the values of the range from this rank, from peers, or from both. It may combine the values by the
// call's op. It may store the result in a buffer, and may send the result to peers. Sender and receiver of a message
// compute the same range. A message therefore carries no description of its range.
//
// A host Step is a collective, such as a reduce-scatter, that ranks of one host perform together through shared memory.
// They send no messages for it. The proofs in the tests treat a host Step as a single action.
//
// The Steps of an algorithm are used in five ways:
//
//   performed   by the executor (execution/executor.hpp)
//   counted     by the cost model (planning/cost.hpp)
//   printed     by explain()
//   simulated   by a simulator, on a model of hosts and links
//   proved      by tests, which run the Steps of all ranks on sets of ranks instead of numbers
//
// Price: before a rank performs the Steps of a call, it stores them in a list. This takes some tens of nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "steps/parts.hpp"

namespace collectives {

/// Ranks, in the order in which their values are combined. The list is valid only during the function call that emits
/// the Step.
using Peers = std::span<const Rank>;

/// Memory from which a Step reads this rank's own value, or to which it writes a value.
enum class Place : std::uint8_t {
  nowhere,
  input,   ///< the input buffer of the caller
  output,  ///< the output buffer of the caller
  work     ///< scratch memory for a partial result that does not fit into the output buffer
};

/// Subgroup: the ranks of a host that perform a host Step together.
enum class Subgroup : std::uint8_t {
  host,    ///< all ranks of this host
  domain,  ///< the ranks of this rank's NUMA domain, which share a cache or a socket
  rail     ///< one rank of each domain of this host, all with the same number in their domain
};

/// Ranges of an exchange of blocks in which each pair of ranks has its own count. A block contains elements that one
/// rank sends to another. Each list has one range per rank.
struct Blocks {
  Parts incoming;  ///< in this rank's destination: the block from each rank
  /// In each rank's source: the block for this rank. Counts from the beginning of that rank's `source_held`.
  Parts peer_sources;
  /// In each rank's destination: the block from this rank. Counts from the beginning of that rank's `destination_held`.
  Parts peer_destinations;
  Range source_held;        ///< this rank's source from the first element of any block to the last
  Range destination_held;   ///< this rank's destination from the first element of any block to the last
  std::size_t longest = 0;  ///< elements of the longest block of any pair
  /// Whether the two blocks of a pair are equally long if one of the ranks works in place.
  bool swaps = true;
};

struct Step {
  enum class Kind : std::uint8_t {
    exchange,
    host_reduce_scatter,
    host_all_gather,
    host_all_reduce,
    host_barrier,
    host_all_to_all,     ///< each rank sends a block to each rank
    host_gather,         ///< the rank with index `root` gets the parts of all owners
    host_scatter,        ///< each owner gets its part from the rank with index `root`
    host_scan,           ///< the rank with index l gets the combined values of the ranks with index 0 to l
    host_exclusive_scan  ///< as host_scan, without the rank's own value; the rank with index 0 gets nothing
  };

  Kind kind = Kind::exchange;
  Peers from = {};         ///< ranks whose values the Step takes, which may include this rank; empty: this rank only
  Peers to = {};           ///< ranks that receive the value
  Range range = {};        ///< elements that the value covers
  bool reduce = false;     ///< whether to combine the values, in the order of `from`
  bool unreduced = false;  ///< whether values of peers are contributions (their inputs), not partial results
  bool finish = false;     ///< whether the value is the final result, which is divided and rounded
  Place source = Place::input;         ///< place of this rank's own value
  Place destination = Place::nowhere;  ///< place to which the value is written
  /// Whether the values of all ranks in `from` go out as one message, one after another. Each has as many elements as
  /// `range`, which is this rank's own value.
  bool joins = false;
  /// If > 0: number of rows of the incoming message, which is divided among all ranks in `to`. A row holds one piece
  /// for each of them. A rank gets its pieces of all rows, which are as many elements as `range`, this rank's own
  /// share.
  int rows = 0;
  /// Place to which the value without this rank's own one is written, in an exclusive scan. A reduction whose `from`
  /// holds a peer and then this rank stores the peer's value there.
  Place before = Place::nowhere;
  Range work = {};  ///< elements for which Place::work must have room, if it is not only `range`
  int depth = 0;    ///< position in its round if rounds overlap (schedule.hpp)

  // Fields of host Steps only. A part is the range of the vector that one rank owns. The rank with index l in the
  // subgroup owns parts[owners[l]]. A rank whose index is beyond the end of `owners` owns nothing.
  Subgroup subgroup = Subgroup::host;
  Parts parts = {};
  Peers owners = {};
  /// If >= 0: index of the only rank that owns a part, which is parts[0]. In a gather or a scatter: index of the rank
  /// with the whole vector, of which the others own parts.
  int root = -1;
  /// In an all-to-all, parts[owners[l]] of a rank's source is its block for the rank with index l. The block from that
  /// rank goes to the same range of the destination. If `blocks` is set, it goes to blocks->incoming[owners[l]]
  /// instead.
  const Blocks* blocks = nullptr;

  /// Returns whether one rank owns the only part of a host Step.
  constexpr bool has_one_owner() const { return root >= 0 && kind != Kind::host_gather && kind != Kind::host_scatter; }
};

/// Returns the number of elements of each message that the Step sends, or receives.
constexpr std::size_t sent_elements(const Step& step) { return step.range.count * (step.joins ? step.from.size() : 1); }
constexpr std::size_t received_elements(const Step& step) {
  return step.range.count * (step.rows > 0 ? step.to.size() : 1);
}

/// Returns whether the ranks of a host Step get the combined values of the ranks before them.
constexpr bool scans(Step::Kind kind) {
  return kind == Step::Kind::host_scan || kind == Step::Kind::host_exclusive_scan;
}

/// Returns a Step that sends this rank's own value unchanged.
constexpr Step send(Peers to, Range range, Place source) { return {.to = to, .range = range, .source = source}; }
/// Returns a Step that receives a value and stores it in the output.
constexpr Step receive(Peers from, Range range) { return {.from = from, .range = range, .destination = Place::output}; }
/// Returns a Step that receives a value, stores it in the output and sends it to other ranks.
constexpr Step forward(Peers from, Peers to, Range range) {
  return {.from = from, .to = to, .range = range, .destination = Place::output};
}
/// Returns a Step that sends this rank's own value and stores it in the output.
constexpr Step spread(Peers to, Range range, Place source) {
  return {.to = to, .range = range, .source = source, .destination = Place::output};
}
/// Returns a Step that copies this rank's own value from one place to another.
constexpr Step copy(Range range, Place source, Place destination) {
  return {.range = range, .source = source, .destination = destination};
}

/// Number of depths between a send and its receive, if no other Steps lie in between. The depth of a Step is its
/// position in its round (schedule.hpp). A distance of 4 lets the messages of 4 rounds be in flight at once.
inline constexpr int kRoundsOnTheWire = 4;

/// Forwards Steps to `run`, and gives them the depths 0, 1, 2 and so on.
template <class Run>
struct Descending {
  Run& run;
  int depth = 0;
  constexpr void operator()(Step step) {
    step.depth = depth++;
    run(step);
  }
};
/// Forwards Steps to `run`, each at a depth increased by `by`. An algorithm uses it to place the Steps of another
/// algorithm after its own.
template <class Run>
struct Deeper {
  Run& run;
  int by;
  constexpr void operator()(Step step) {
    step.depth += by;
    run(step);
  }
};
/// Forwards Steps to `run`, all at the same depth.
template <class Run>
struct AtDepth {
  Run& run;
  int depth;
  constexpr void operator()(Step step) {
    step.depth = depth;
    run(step);
  }
};

/// Returns whether `step` is a sum of one term that is only forwarded. For most ops the sum equals the term, so nothing
/// is computed.
constexpr bool only_hands_on(const Step& step) {
  return step.reduce && !step.finish && step.from.size() == 1 && step.destination == Place::nowhere;
}
/// Returns the number of values that the rank adds in `step`.
constexpr std::size_t terms(const Step& step) { return step.reduce && !only_hands_on(step) ? step.from.size() : 0; }

/// Work of a host Step. The unit is the work on one element that the ranks share evenly. An element that one rank
/// handles alone therefore counts as many units as there are ranks.
struct HostStepWork {
  std::size_t average = 0;  ///< work of an average rank
  std::size_t longest = 0;  ///< work of the busiest rank, for which all other ranks wait
};
/// Returns the work of `step` among `ranks` ranks.
///
/// In a reduce-scatter, the owner of a part adds all contributions alone, with one exception. A reduce-scatter to the
/// output of a single owner is shared by all ranks. In all other host Steps the ranks share the work.
constexpr HostStepWork host_step_work(const Step& step, std::size_t ranks) {
  std::size_t all = 0, longest = 0;
  const auto count = [&](std::size_t elements) {
    all += elements;
    longest = std::max(longest, elements);
  };
  if (step.has_one_owner()) {
    count(step.parts[0].count);
  } else {
    const bool rooted = step.root >= 0;  // the rank with the whole vector has its own part already
    for (std::size_t i = 0; i < step.owners.size(); ++i)
      if (!rooted || static_cast<int>(i) != step.root) count(step.parts[step.owners[i]].count);
  }
  const bool alone = step.kind == Step::Kind::host_reduce_scatter && (step.root < 0 || step.destination == Place::work);
  return {all, alone ? ranks * longest : all};
}

/// Returns a Step that reduces the values of `from`, which includes this rank, to one partial result, and sends it.
constexpr Step combine(Peers from, Peers to, Range range, Place source, bool unreduced) {
  return {.from = from, .to = to, .range = range, .reduce = true, .unreduced = unreduced, .source = source};
}
/// Returns a Step that reduces the values of `from` and stores the result at `destination`. It also sends the result,
/// if `to` is not empty.
constexpr Step complete(Peers from, Peers to, Range range, Place source, bool unreduced, bool finish,
                        Place destination) {
  return {.from = from,
          .to = to,
          .range = range,
          .reduce = true,
          .unreduced = unreduced,
          .finish = finish,
          .source = source,
          .destination = destination};
}

}  // namespace collectives
