// HostSelection: the entries that the host selects from a gradient in one call. An entry is an index with its value.
//
// A selected value leaves the residual, the part of gradients that was not sent yet. A value that is sent as bf16
// leaves its rounding error behind. If the call fails, put_back() returns the values.
#pragma once

#include <cstdint>
#include <vector>

#include "compression/select.hpp"
#include "compression/sparse.hpp"
#include "compression/top_k/residual_state.hpp"
#include "compression/top_k/sparse_exchange.hpp"

namespace collectives {

class HostSelection {
 public:
  /// `options` must outlive the object.
  explicit HostSelection(const TopKOptions& options) : options_(options) {}

  /// Selects format.k elements of scale * `gradient` and the residual of `state`. The gradient has format.n elements.
  /// Returns the status for the other members. If an element of the gradient is not finite and options do not let it
  /// pass, selects zeros and leaves the state unchanged.
  SparseExchange::MemberStatus select(const float* gradient, float scale, const SparseFormat& format,
                                      ResidualState& state);
  /// Returns the selected entries. They are valid until the next select().
  Entries entries() const noexcept { return {indices_.data(), values_.data(), indices_.size()}; }
  /// Returns true if the entries have been taken from the state.
  bool is_taken() const noexcept { return taken_; }
  /// Ends the call: put_back() is no longer possible.
  void release() noexcept { taken_ = false; }
  /// Sets the residual of each selected element to its selected value.
  void put_back(ResidualState& state) noexcept;
  /// Sets the velocity of each selected element to zero.
  void clear_velocity(ResidualState& state) const;

 private:
  const TopKOptions& options_;
  Selector selector_;
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  bool taken_ = false;
};

}  // namespace collectives
