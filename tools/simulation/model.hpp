// The call that the simulator plays, and its rounds.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"

namespace collectives::simulation {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// A call, cut into rounds as its plan says.
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

/// Returns the call of `request` with `plan`. `offsets` holds the offsets of listed parts, and must outlive the call.
Call call_of(const Request& request, const Plan& plan, const Topology& topology, std::vector<std::size_t>& offsets);
/// Returns the call with parts of equal length. The vector is longer, by as much as a multiple of `unit` requires.
Call rounded_up(const Call& call, std::size_t unit);
/// Returns the call with only `rounds` rounds. The last one of `call` is among them.
Call shortened(const Call& call, std::size_t rounds);

/// Returns the longest share of the work in a host Step, over the ranks that take part.
std::size_t longest_share(const Step& step, const RankView& view);

}  // namespace collectives::simulation
