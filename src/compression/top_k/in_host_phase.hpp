// InHostPhase: a phase of a sparse call among the ranks of one host, as a job of the executor.
//
// The tensor is cut into slices, one per rank that owns one. An object describes one phase at a time. Each function
// keeps the tag of `job`.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "execution/job.hpp"
#include "steps/parts.hpp"

namespace collectives {

class InHostPhase {
 public:
  /// Adds the ranks' vectors `input` of `count` elements. The owner of `slice` has its sum in `sum`, which holds only
  /// the slice.
  void add(Job& job, std::size_t count, int slices, const float* input, std::vector<float>& sum, Range slice);
  /// Gathers the slices of `output`. Each owner has written its slice.
  void gather(Job& job, std::size_t count, int slices, float* output);
  /// Asks whether `flag` is true on any rank of the host.
  void ask(Job& job, bool flag);
  /// Returns the answer to the last ask(), once its job is done.
  bool any() const noexcept { return flags_ > 0; }

 private:
  void describe(Job& job, const Algorithm& algorithm, std::size_t count, int parts, const float* input, float* output);

  Plan plan_;
  float flag_ = 0, flags_ = 0;  // Flag of this rank, and the sum over the host.
};

}  // namespace collectives
