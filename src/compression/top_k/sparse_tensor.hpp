// SparseTensor: represents one tensor whose gradients are sent by top-k. A sparse call sends only the k elements of
// greatest magnitude. The residual is the part of gradients that was not sent yet. The object holds the residual, the
// current operation, and figures of the last call, such as the number of sent elements.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "collectives/top_k.hpp"
#include "compression/top_k/tensor_residual.hpp"
#include "compression/top_k/top_k_operation.hpp"

namespace collectives {

/// Minimum number of elements of a tensor that is too long. Reason: indices have 32 bits.
inline constexpr std::size_t kTooMany = std::size_t{1} << 32;

class SparseTensor {
 public:
  SparseTensor(std::string name, const TopKOptions& options) : name_(std::move(name)), options_(options) {}

  /// Throws Error{invalid_argument} if another call of the tensor is under way, if earlier calls had another `count`,
  /// or if `count` is too large.
  void check(std::size_t count, Rank rank) const;
  /// Returns the number of elements that the next call selects.
  std::size_t next_k(std::size_t count) const;
  /// Returns the report of the last call. With `norms`, reads the residual even if it is on a GPU. Throws Error{system}
  /// if the GPU fails.
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
