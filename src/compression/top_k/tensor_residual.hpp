// TensorResidual: the residual and the velocity of a tensor, in CPU memory or on a GPU. The residual is the part of
// gradients that top-k has not sent yet. The velocity is the decaying sum of gradients that momentum correction uses.
// While residual and velocity are in CPU memory, a ResidualState holds them (residual_state.hpp).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compression/top_k/residual_state.hpp"

namespace collectives {

/// Residual and velocity of a tensor in GPU memory.
class DeviceResidual {
 public:
  virtual ~DeviceResidual() = default;
  /// Copies the residual and the velocity to CPU memory. Blocks until the copies are complete. If the GPU has no
  /// residual or no velocity, leaves that argument unchanged. Throws Error{system} if the GPU fails.
  virtual void read(std::vector<float>& residual, std::vector<float>& velocity) = 0;
  /// Whether a failed call has returned its selected values to the residual. These values may be too large for the type
  /// of values in messages.
  bool returned = false;
};

class TensorResidual {
 public:
  /// `options` must outlive the object.
  explicit TensorResidual(const TopKOptions& options) : options_(options) {}

  /// Return the state. It lacks residual and velocity while they are on a GPU.
  ResidualState& state() noexcept { return state_; }
  const ResidualState& state() const noexcept { return state_; }
  /// Returns the residual and velocity on a GPU. Null: they are in state().
  DeviceResidual* on_device() const noexcept { return device_.get(); }
  /// Returns a copy of the complete state. Reads residual and velocity from the GPU, if they are there. Throws
  /// Error{system} if the GPU fails.
  ResidualState full_state() const;

  /// Returns true if the state covers `slice`, one of `slices` ranges of the tensor with one owner each. `slices` 0
  /// means the whole tensor. Also returns true if the options keep no residual. If the result is false on any rank of a
  /// host, the ranks of the host first add their states.
  bool keeps(int slices, Range slice) const noexcept {
    return !options_.error_feedback || state_.covers(slices, slice);
  }
  /// Moves residual and velocity from the GPU, if they are there, to CPU memory. Throws Error{system} if the GPU fails.
  void move_to_host();
  /// Moves the state to CPU memory, and extends it to all `count` elements. Missing values become zeros. Throws
  /// Error{system} if the GPU fails.
  void move_to_host(std::size_t count);
  /// Moves the state of this rank's slice to CPU memory. Requires keeps(slices, slice). Throws Error{system} if the GPU
  /// fails.
  void move_slice_to_host(std::size_t count, int slices, Range slice);
  /// Takes over residual and velocity on a GPU, and frees those in CPU memory.
  void move_to_device(std::unique_ptr<DeviceResidual> where);

 private:
  const TopKOptions& options_;
  ResidualState state_;
  std::unique_ptr<DeviceResidual> device_;
};

}  // namespace collectives
