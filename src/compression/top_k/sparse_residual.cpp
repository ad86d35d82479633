// Residual and velocity of a tensor between calls: they belong to one rank or to the owner of a slice, and lie in host
// memory or on the GPU.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"

namespace collectives {
namespace {

/// Expands the list of a slice to the whole tensor, with zeros elsewhere.
std::vector<float> whole(std::vector<float>& of_slice, const ResidualState& state) {
  if (of_slice.size() == state.count || of_slice.empty()) return std::move(of_slice);
  std::vector<float> all(state.count);
  std::ranges::copy(of_slice, all.begin() + static_cast<std::ptrdiff_t>(state.slice.first));
  of_slice.clear();
  return all;
}

}  // namespace

/// Gives this rank a state of the whole tensor. The state of a host's slice becomes the state of its owner. The sum
/// over all ranks stays unchanged.
void SparseTensor::keep_for_rank() {
  state.residual = whole(state.residual, state);
  state.velocity = whole(state.velocity, state);
  state.slices = 0;
  state.slice = {0, state.count};
  if (!state.pending.empty()) state.residual.resize(state.count);
  for (std::size_t i = 0; i < state.pending.size(); ++i) state.residual[i] += state.pending[i];
  state.pending.clear();
  if (!options_.error_feedback) state.residual.clear();
  state.velocity.resize(options_.momentum > 0 ? state.count : 0);
}

/// Gives this rank the state of its slice. If any rank of the host has to move its state, all of them first add their
/// states inside the host. This case also arises if only some ranks took part in an earlier call of the tensor, or if a
/// failed call left its state on some ranks.
void SparseTensor::keep_for_host() {
  const Range slice = call_.plan->slice(call_.view->grid.local);
  phase_ = Phase::add_inside;
  if (moved_by_ > 0) {
    keep_for_rank();
    moved_residual_ = std::move(state.residual);
    moved_residual_.resize(state.count);
    moved_velocity_ = std::move(state.velocity);
    state.residual.clear();
    state.velocity.clear();
    phase_ = Phase::move_residual;
  }
  keep_slice(call_.plan->slices, slice);
  host_sum_.resize(slice.count);
}

void SparseTensor::keep_slice(int slices, Range slice) {
  state.slices = static_cast<std::uint32_t>(slices);
  state.slice = slice;
  state.residual.resize(options_.error_feedback ? slice.count : 0);
  state.velocity.resize(options_.momentum > 0 ? slice.count : 0);
}

void SparseTensor::fetch_residual() {
  if (device_residual == nullptr) return;
  device_residual->read(state.residual, state.velocity);
  if (device_residual->returned) drop_unrepresentable(state);
  device_residual = nullptr;
}

void SparseTensor::bring_residual_to_host(std::size_t count) {
  fetch_residual();
  state.count = count;
  keep_for_rank();
}

void SparseTensor::bring_slice_to_host(std::size_t count, int slices, Range slice) {
  fetch_residual();
  state.count = count;
  keep_slice(slices, slice);
}

void SparseTensor::move_residual_to_device(std::unique_ptr<DeviceResidual> where) {
  device_residual = std::move(where);
  state.residual = std::vector<float>();
  state.velocity = std::vector<float>();
}

ResidualState SparseTensor::full_state() const {
  ResidualState all = state;
  if (device_residual != nullptr) device_residual->read(all.residual, all.velocity);
  if (device_residual != nullptr && device_residual->returned) drop_unrepresentable(all);
  return all;
}

/// Returns the sent values to the residual, because no rank receives them. A value that would not arrive as a finite
/// number is dropped with its velocity. Otherwise the value would make every later call fail.
void SparseTensor::take_back() noexcept {
  sent_norm_ = 0;
  if (!options_.error_feedback || !(chosen_ || sent_copy_)) return;
  if (sent_copy_)
    std::swap(state.residual, gradient_);
  else
    for (std::size_t i = 0; i < values_.size(); ++i) state.residual[indices_[i]] = values_[i];
  drop_unrepresentable(state);
  chosen_ = sent_copy_ = false;
}

void SparseTensor::drop_unrepresentable(ResidualState& of) const noexcept {
  for (std::size_t i = 0; i < of.residual.size(); ++i)
    if (!std::isfinite(arrives(of.residual[i]))) {
      of.residual[i] = 0;
      if (!of.velocity.empty()) of.velocity[i] = 0;
    }
}

}  // namespace collectives
