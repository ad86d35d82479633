// ResidualState: the values that a rank keeps for one tensor between top-k calls, in CPU memory. A sparse top-k call
// sends only the k elements of greatest magnitude. The residual is the part of gradients that was not sent yet. The
// velocity is the decaying sum of gradients that momentum correction uses.
//
// A slice is the range of the tensor from which one rank selects. Residual and velocity cover the whole tensor, or only
// the slice of the rank. A checkpoint of a rank holds one ResidualState per tensor (TopK::save).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/top_k.hpp"
#include "collectives/types.hpp"
#include "steps/parts.hpp"

namespace collectives {

/// Returns `value` as the other ranks receive it: rounded to `type`, in which it is sent. If `type` is bf16, a value
/// beyond its range becomes infinite.
inline float received_value(float value, DataType type) {
  return type == DataType::bf16 ? static_cast<float>(bfloat16(value)) : value;
}

/// Residual and velocity of one tensor on one rank, with their range.
struct ResidualState {
  std::size_t count = 0;  ///< Number of elements of the tensor.
  std::uint64_t calls = 0;
  /// Number of slices into which the ranks of this host divide the tensor. Each slice has one owner, which keeps the
  /// residual and the velocity of the slice for the sum of the host's gradients. If the number is 0, residual and
  /// velocity cover the whole tensor, and belong to the gradients of this rank alone.
  std::uint32_t slices = 0;
  Range slice;                  ///< Range of the tensor from which this rank selects.
  std::vector<float> residual;  ///< Residual of the slice. Empty: all zeros.
  std::vector<float> velocity;  ///< Velocity of the slice. Empty: all zeros.
  /// Residual of the whole tensor, loaded from a run with a different number of ranks. Empty: none.
  std::vector<float> pending;

  /// Returns true if the state covers `slice_of_rank`, one of `number` slices. `number` 0: returns true if the state
  /// covers the whole tensor.
  bool covers(int number, Range slice_of_rank) const noexcept {
    return slices == static_cast<std::uint32_t>(number) && (number == 0 || slice == slice_of_rank);
  }
  /// Extends the state from the slice to the whole tensor, with zeros elsewhere, and adds the pending residual. The
  /// state then belongs to this rank alone. The sum of the states of all ranks stays unchanged.
  void cover_tensor(const TopKOptions& options);
  /// Makes the state cover `slice_of_rank`, one of `number` slices. Missing values become zeros.
  void cover_slice(const TopKOptions& options, int number, Range slice_of_rank);
  /// Drops each value that would not arrive as a finite number in `type`, with its velocity. Otherwise the value would
  /// make every later call fail.
  void drop_unrepresentable(DataType type) noexcept;
};

}  // namespace collectives
