// ResidualMigration: moves a rank's residual and velocity to the owners of slices. The residual is the part of
// gradients that top-k has not sent yet. The velocity is the decaying sum of gradients that momentum correction uses. A
// slice is a range of the tensor. One rank of the host, its owner, keeps residual and velocity of the slice.
//
// The object keeps the rank's own residual and velocity until the call that moves them has ended. If the call fails,
// undo() returns these vectors to the rank's ResidualState.
#pragma once

#include <utility>
#include <vector>

#include "compression/top_k/residual_state.hpp"

namespace collectives {

class ResidualMigration {
 public:
  /// Takes residual and velocity from `state`, which must cover the whole tensor. Missing residuals become zeros.
  void begin(ResidualState& state) {
    residual_ = std::move(state.residual);
    residual_.resize(state.count);
    velocity_ = std::move(state.velocity);
    state.residual.clear();
    state.velocity.clear();
  }
  /// Return the vectors to move. Each owner adds its slice of the vectors of all ranks of the host.
  const float* residual() const noexcept { return residual_.data(); }
  const float* velocity() const noexcept { return velocity_.data(); }
  /// Frees the vectors. At this time, the owners of the slices have the sums of the vectors.
  void end() noexcept {
    residual_ = std::vector<float>();  // clear() would keep the memory
    velocity_ = std::vector<float>();
  }
  /// Returns the vectors to `state`, if begin() has taken them.
  void undo(ResidualState& state) noexcept {
    if (residual_.empty()) return;
    state.residual = std::exchange(residual_, {});
    state.velocity = std::exchange(velocity_, {});
    state.slices = 0;
    state.slice = {0, state.count};
  }

 private:
  std::vector<float> residual_, velocity_;
};

}  // namespace collectives
