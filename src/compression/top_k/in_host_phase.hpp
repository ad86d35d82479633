// InHostPhase: the phases of a top-k call in which only the ranks of one host take part. A sparse top-k call sends only
// the k elements of greatest magnitude to other hosts. Inside a host, these phases add whole vectors and gather the
// result. A further phase determines whether a flag is set on any rank.
//
// The tensor is cut into slices. A rank with a slice is the owner of the slice. The functions add(), gather() and ask()
// each describe one phase as a job, which the executor then performs. They do not change the tag of the job, which
// identifies the messages of the call.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/plan.hpp"
#include "execution/job.hpp"
#include "steps/parts.hpp"

namespace collectives {

class InHostPhase {
 public:
  /// Adds the vectors `input` of all ranks of the host, of `count` elements each. This rank receives the sum of its own
  /// slice, `slice`, in the vector `sum`, which holds only this slice.
  void add(Job& job, std::size_t count, int slices, const float* input, std::vector<float>& sum, Range slice);
  /// Gathers the slices of `output`, so that `output` is complete on all ranks of the host. Requires that each owner
  /// has written its own slice.
  void gather(Job& job, std::size_t count, int slices, float* output);
  /// Determines whether `flag` is true on any rank of the host. any() returns the result.
  void ask(Job& job, bool flag);
  /// Returns the result of the last ask(). Requires that its job is done.
  bool any() const noexcept { return flags_ > 0; }

 private:
  void describe(Job& job, const Algorithm& algorithm, std::size_t count, int parts, const float* input, float* output);

  Plan plan_;
  float flag_ = 0, flags_ = 0;  // Flag of this rank, and the sum over the host.
};

}  // namespace collectives
