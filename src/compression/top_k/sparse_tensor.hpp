// SparseTensor: one tensor of a TopK, with its residual, its current operation and its report. The residual is the part
// of gradients that was not sent yet.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "collectives/top_k.hpp"
#include "compression/top_k/tensor_residual.hpp"
#include "compression/top_k/top_k_operation.hpp"

namespace collectives {

/// Limit of a tensor's element count, because indices have 32 bits.
inline constexpr std::size_t kTooMany = std::size_t{1} << 32;

class SparseTensor {
 public:
  SparseTensor(std::string name, const TopKOptions& options) : name_(std::move(name)), options_(options) {}

  /// Checks the arguments of a call. Throws Error{invalid_argument}.
  void check(std::size_t count, Rank rank) const;
  /// Returns the number of elements that the next call selects.
  std::size_t next_k(std::size_t count) const;
  /// Returns the report of the last call. With `norms` it reads a residual that is on a GPU, and throws Error{system}.
  TopKReport report(bool norms) const;

  const TopKOptions& options() const noexcept { return options_; }
  TensorResidual& residual() noexcept { return residual_; }
  const TensorResidual& residual() const noexcept { return residual_; }
  /// Returns the operation of the tensor. A tensor has at most one at a time.
  TopKOperation& operation() noexcept { return operation_; }
  const TopKOperation& operation() const noexcept { return operation_; }

 private:
  const std::string name_;
  const TopKOptions options_;
  TensorResidual residual_{options_};
  TopKOperation operation_{options_, residual_};
};

}  // namespace collectives
