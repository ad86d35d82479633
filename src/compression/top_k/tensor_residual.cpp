// Implementation of TensorResidual, which holds two vectors of a tensor. The residual is the sum of gradient values
// that top-k has not sent yet. The velocity is the decaying sum of gradients that momentum correction uses. Both
// vectors lie in CPU memory, or both lie on a GPU. The functions of this file copy or move them between CPU and GPU.
#include "compression/top_k/tensor_residual.hpp"

namespace collectives {

ResidualState TensorResidual::full_state() const {
  ResidualState all = state_;
  if (device_ == nullptr) return all;
  device_->read(all.residual, all.velocity);
  if (device_->returned) all.drop_unrepresentable(options_.values);
  return all;
}

void TensorResidual::move_to_host() {
  if (device_ == nullptr) return;
  device_->read(state_.residual, state_.velocity);
  if (device_->returned) state_.drop_unrepresentable(options_.values);
  device_ = nullptr;
}

void TensorResidual::move_to_host(std::size_t count) {
  move_to_host();
  state_.count = count;
  state_.cover_tensor(options_);
}

void TensorResidual::move_slice_to_host(std::size_t count, int slices, Range slice) {
  move_to_host();
  state_.count = count;
  state_.cover_slice(options_, slices, slice);
}

void TensorResidual::move_to_device(std::unique_ptr<DeviceResidual> where) {
  device_ = std::move(where);
  state_.residual = std::vector<float>();
  state_.velocity = std::vector<float>();
}

}  // namespace collectives
