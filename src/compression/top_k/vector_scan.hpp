// Functions that read a vector of floats once. They compute its squared norm, or find its first value that is not
// finite.
#pragma once

#include <cstddef>
#include <span>

namespace collectives {

/// Returns the sum of the squares of `values`.
double squared_norm(std::span<const float> values);

/// Returns the index of the first value that is NaN or infinite. Returns the number of values if all are finite.
std::size_t first_non_finite(std::span<const float> values);

}  // namespace collectives
