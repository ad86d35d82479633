// Implementation of HostSelection, which selects the elements that a top-k call sends. It works on the CPU.
//
// A sparse top-k call sends only the k elements of greatest magnitude. The other elements stay in the residual, the sum
// of values that were not sent yet. If values are sent as bf16, their rounding errors stay in the residual, too. If the
// option error_feedback is off, there is no residual. The elements and rounding errors that are not sent are then lost.
#include "compression/top_k/host_selection.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compression/top_k/vector_scan.hpp"

namespace collectives {

SparseExchange::MemberStatus HostSelection::select(const float* gradient, float scale, const SparseFormat& format,
                                                   ResidualState& state) {
  indices_.resize(format.k);
  values_.resize(format.k);
  std::uint32_t* indices = indices_.data();
  float* values = values_.data();
  const std::span<const float> given(gradient, format.n);
  const bool careful = options_.non_finite != NonFinite::propagate;
  if (const std::size_t bad = careful ? first_non_finite(given) : format.n; bad < format.n) {
    // A gradient with NaN or infinity must not enter the residual, because NaN and infinity would stay there. All ranks
    // receive the status of this rank, and discard the values of this call.
    std::iota(indices, indices + format.k, 0U);
    std::fill_n(values, format.k, 0.0F);
    return {1, static_cast<std::uint32_t>(bad)};
  }
  SparseExchange::MemberStatus status{};
  status.non_finite = static_cast<std::uint32_t>(selector_.select({.gradient = given,
                                                                   .accumulated = state.residual,
                                                                   .velocity = state.velocity,
                                                                   .momentum = options_.momentum,
                                                                   .scale = scale,
                                                                   .masking = options_.masking && !careful},
                                                                  format.k, indices, values));
  taken_ = true;
  const auto received = [&](float value) { return received_value(value, options_.values); };
  const auto lost = [&](float value) { return !std::isfinite(received(value)); };
  if (format.values == DataType::bf16)
    status.non_finite = static_cast<std::uint32_t>(std::ranges::count_if(values_, lost));
  if (status.non_finite > 0) status.first_non_finite = indices[std::ranges::find_if(values_, lost) - values_.begin()];
  if (options_.error_feedback && format.values == DataType::bf16)
    for (std::size_t i = 0; i < format.k; ++i)
      if (const float error = values[i] - received(values[i]); std::isfinite(error)) state.residual[indices[i]] = error;
  return status;
}

void HostSelection::put_back(ResidualState& state) noexcept {
  for (std::size_t i = 0; i < values_.size(); ++i) state.residual[indices_[i]] = values_[i];
  taken_ = false;
}

void HostSelection::clear_velocity(ResidualState& state) const {
  for (const std::uint32_t index : indices_) state.velocity[index] = 0;
}

}  // namespace collectives
