// Implementation of ResidualState, which holds the residual of a tensor. The residual is the sum of gradient values
// that top-k has not sent yet.
//
// A residual covers the whole tensor, or a slice of it. Functions of this file convert a residual of a slice to one of
// the tensor, and back. They also remove values that would become infinite as bf16, and thus cannot be sent.
#include "compression/top_k/residual_state.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace collectives {
namespace {

/// Returns a vector as long as the tensor. It holds `of_slice` in the range of the slice, and zeros elsewhere. If
/// `of_slice` is empty, returns an empty vector.
std::vector<float> whole(std::vector<float>& of_slice, const ResidualState& state) {
  if (of_slice.size() == state.count || of_slice.empty()) return std::move(of_slice);
  std::vector<float> all(state.count);
  std::ranges::copy(of_slice, all.begin() + static_cast<std::ptrdiff_t>(state.slice.first));
  of_slice.clear();
  return all;
}

}  // namespace

void ResidualState::cover_tensor(const TopKOptions& options) {
  residual = whole(residual, *this);
  velocity = whole(velocity, *this);
  slices = 0;
  slice = {0, count};
  if (!pending.empty()) residual.resize(count);
  for (std::size_t i = 0; i < pending.size(); ++i) residual[i] += pending[i];
  pending.clear();
  if (!options.error_feedback) residual.clear();
  velocity.resize(options.momentum > 0 ? count : 0);
}

void ResidualState::cover_slice(const TopKOptions& options, int number, Range slice_of_rank) {
  slices = static_cast<std::uint32_t>(number);
  slice = slice_of_rank;
  residual.resize(options.error_feedback ? slice.count : 0);
  velocity.resize(options.momentum > 0 ? slice.count : 0);
}

void ResidualState::drop_unrepresentable(DataType type) noexcept {
  for (std::size_t i = 0; i < residual.size(); ++i)
    if (!std::isfinite(received_value(residual[i], type))) {
      residual[i] = 0;
      if (!velocity.empty()) velocity[i] = 0;
    }
}

}  // namespace collectives
