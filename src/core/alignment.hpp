// Alignment of element types. GPUs and NCCL require that the address of a buffer is a multiple of the alignment of its
// element type.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Returns the alignment of an element of `type` in bytes. The alignment of a complex number or a pair is the alignment
/// of its first member.
constexpr std::size_t alignment_of(DataType type) noexcept {
  const bool has_parts = class_of(type) == TypeClass::complex || class_of(type) == TypeClass::value_index;
  return has_parts ? size_of(type) / 2 : size_of(type);
}

}  // namespace collectives
