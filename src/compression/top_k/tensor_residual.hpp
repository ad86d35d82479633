// TensorResidual: the residual state of a tensor (residual_state.hpp) and its place. The vectors of the state lie in
// host memory or on a GPU.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compression/top_k/residual_state.hpp"

namespace collectives {

/// Residual and velocity of a tensor in memory other than the host's.
class DeviceResidual {
 public:
  virtual ~DeviceResidual() = default;
  /// Copies the residual and the velocity to the host. Blocks until the copies are complete. Leaves an argument
  /// unchanged if there is no such vector. Throws Error{system}.
  virtual void read(std::vector<float>& residual, std::vector<float>& velocity) = 0;
  /// True: a failed call has returned its entries to the residual, including values that the wire type cannot
  /// represent.
  bool returned = false;
};

class TensorResidual {
 public:
  /// `options` must outlive the object.
  explicit TensorResidual(const TopKOptions& options) : options_(options) {}

  /// Return the state. It lacks residual and velocity while they are on a GPU.
  ResidualState& state() noexcept { return state_; }
  const ResidualState& state() const noexcept { return state_; }
  /// Returns the residual and velocity on a GPU. Null: state() is complete.
  DeviceResidual* on_device() const noexcept { return device_.get(); }
  /// Returns a copy of the complete state, which reads the GPU if necessary. Throws Error{system}.
  ResidualState full_state() const;

  /// Returns true if the state covers `slice`, one of `slices` slices, or if none has to be kept. `slices` 0 stands for
  /// the whole tensor. If it returns false on any rank of a host, the ranks of the host first add their states.
  bool keeps(int slices, Range slice) const noexcept {
    return !options_.error_feedback || state_.covers(slices, slice);
  }
  /// Moves residual and velocity from a GPU to the host, if they are there. Throws Error{system}.
  void move_to_host();
  /// Moves the state to the host. This rank then keeps all `count` elements; missing values are zeros. Throws
  /// Error{system}.
  void move_to_host(std::size_t count);
  /// Moves the state of this rank's slice to the host. Requires keeps(slices, slice).
  void move_slice_to_host(std::size_t count, int slices, Range slice);
  /// Replaces residual and velocity by those in `where`.
  void move_to_device(std::unique_ptr<DeviceResidual> where);

 private:
  const TopKOptions& options_;
  ResidualState state_;
  std::unique_ptr<DeviceResidual> device_;
};

}  // namespace collectives
