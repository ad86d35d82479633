// check_apart(): refuses a group in which two tensors share memory that one of them writes.
//
// A group reduces its tensors together, in no stated order. In two calls in a row, a buffer may be the output of the
// first and the input of the second. A group would give that buffer another value. Inputs may be shared, because a
// group only reads them.
#pragma once

#include <span>

#include "core/call.hpp"

namespace collectives {

/// Throws Error{invalid_argument} if the output of one tensor overlaps the input or the output of another one. The text
/// names both positions, counted from 1. Requires that the input and the output of each tensor are equal or apart.
void check_apart(std::span<const Tensor> tensors, Rank rank);

}  // namespace collectives
