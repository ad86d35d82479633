// Call: the collective of a simulation, cut into rounds. Each round performs all Steps (actions of the ranks) on one
// segment of each part of the vector.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives::simulation {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Collective with its algorithm, cut into the rounds of its plan.
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

/// Returns the call of `request` with `plan`. If the request lists the lengths of the parts, stores their offsets in
/// `offsets`, which must outlive the call.
Call call_of(const Request& request, const Plan& plan, const Topology& topology, std::vector<std::size_t>& offsets);
/// Returns the call with its vector lengthened to a multiple of `unit` elements, so that its parts have equal length.
Call rounded_up(const Call& call, std::size_t unit);
/// Returns the call with only `rounds` of its rounds. The last round of the call remains, because it may be shorter.
Call shortened(const Call& call, std::size_t rounds);

/// Returns the maximum number of elements that one rank processes in a host Step. In a host Step, ranks of one host
/// work together through shared memory.
std::size_t longest_share(const Step& step, const RankView& view);

}  // namespace collectives::simulation
