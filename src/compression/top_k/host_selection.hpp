// HostSelection: selects the entries of one sparse top-k call on the CPU. A sparse call sends only the k elements of
// greatest magnitude. An entry is the index of an element with its value.
//
// The residual is the part of gradients that was not sent yet. The object adds the gradient to the residual, selects
// entries from the sum, and removes the selected entries from the sum. The rest of the sum is the new residual. If the
// option error_feedback is off, there is no residual, and the entries are selected from the gradient. If a value is
// sent as bf16, its rounding error stays in the residual. If the call fails, put_back() returns the selected values to
// the residual.
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

  /// Adds scale * `gradient` (format.n elements) to the residual of `state`, and selects format.k elements of the sum.
  /// With momentum, adds the velocity (a decaying sum of gradients) to the residual instead. Without a residual,
  /// selects from scale * `gradient` alone. Returns the status of the selection, which the other ranks receive. If the
  /// gradient has NaN or infinity and the options do not propagate them, selects zeros and leaves `state` unchanged.
  SparseExchange::MemberStatus select(const float* gradient, float scale, const SparseFormat& format,
                                      ResidualState& state);
  /// Returns the selected entries. They are valid until the next select().
  Entries entries() const noexcept { return {indices_.data(), values_.data(), indices_.size()}; }
  /// Returns true after a select() that took elements, until release() or put_back().
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
