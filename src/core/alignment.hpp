// Alignment of elements, which GPUs and NCCL need.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Returns the alignment of an element of `type` in bytes. For a complex number or a pair it is that of its parts.
constexpr std::size_t alignment_of(DataType type) noexcept {
  const bool has_parts = class_of(type) == TypeClass::complex || class_of(type) == TypeClass::value_index;
  return has_parts ? size_of(type) / 2 : size_of(type);
}

}  // namespace collectives
