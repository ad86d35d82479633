// TopK::Impl: the private part of TopK, the compressor whose sparse calls send only the k elements of greatest
// magnitude. The object holds one SparseTensor for each tensor name (sparse_tensor.hpp). The head of
// top_k_operation.hpp describes the phases of a call.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/top_k.hpp"
#include "compression/top_k/sparse_tensor.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN TopK::Impl {
  explicit Impl(const TopKOptions& the_options) : options(the_options) {}
  /// Returns the number of elements that the next call for `name` selects. Throws Error{invalid_argument} if the tensor
  /// cannot be used in this call (SparseTensor::check()).
  std::size_t next_k(std::string_view name, std::size_t count, Rank rank) const;
  SparseTensor& tensor(std::string_view name);

  const TopKOptions options;
  std::map<std::string, std::unique_ptr<SparseTensor>, std::less<>> tensors;
};

}  // namespace collectives
