// Call: the collective that is simulated, divided into rounds. Each round performs all Steps (actions of the ranks) on
// one segment of each part of the vector.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives::simulation {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Collective with its algorithm and the rounds of its plan.
struct Call {
  const Algorithm* algorithm = nullptr;
  RoundArgs args;
  std::size_t segment = 0, rounds = 1, issue_interval = 1;
  Coding coding = {};

  RoundArgs round(std::size_t index) const {
    RoundArgs now = args;
    if (rounds > 1) now.parts = args.parts.round(segment, index);
    return now;
  }
  void emit(const RankView& view, std::size_t index, StepSink& sink) const {
    algorithm->emit(view, round(index), sink);
  }
};

/// Returns the Call of a request and its plan. If the request lists the lengths of the parts, stores the offsets of the
/// parts in `offsets`. `offsets` must outlive the Call.
Call call_of(const Request& request, const Plan& plan, const Topology& topology, std::vector<std::size_t>& offsets);
/// Returns the Call with a longer vector: the next multiple of `unit` elements, so that all parts have equal length.
Call rounded_up(const Call& call, std::size_t unit);
/// Returns the Call with only `rounds` rounds. The last round of `call` stays the last one, because it may be shorter
/// than the others.
Call shortened(const Call& call, std::size_t rounds);

/// Returns the maximum number of elements that one rank processes in a host Step. In a host Step, ranks of one host
/// work together through shared memory.
std::size_t longest_share(const Step& step, const RankView& view);

}  // namespace collectives::simulation
