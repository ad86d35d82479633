// ResidualMigration: the move of a rank's residual and velocity to the owners of slices. A slice is the share of one
// rank in the host's sum.
//
// The rank's own vectors are kept until the call that moves them has ended. If the call fails, they become the state
// again.
#pragma once

#include <utility>
#include <vector>

#include "compression/top_k/residual_state.hpp"

namespace collectives {

class ResidualMigration {
 public:
  /// Takes residual and velocity from `state`, which covers the tensor. Missing residuals are zeros.
  void begin(ResidualState& state) {
    residual_ = std::move(state.residual);
    residual_.resize(state.count);
    velocity_ = std::move(state.velocity);
    state.residual.clear();
    state.velocity.clear();
  }
  /// Return the vectors to move.
  const float* residual() const noexcept { return residual_.data(); }
  const float* velocity() const noexcept { return velocity_.data(); }
  /// Frees the vectors, because the owners of the slices have them.
  void end() noexcept {
    residual_ = std::vector<float>();
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
