// Two functions that read a vector of floats: squared_norm(), and first_non_finite(), which finds the first NaN or
// infinity. Compilers vectorize the loops of both functions.
#include "compression/top_k/vector_scan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

namespace collectives {

double squared_norm(std::span<const float> values) {
  // Number of independent partial sums, whose additions can overlap.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t s = 0; s < kSums; ++s)
      sums[s] += static_cast<double>(values[i + s]) * static_cast<double>(values[i + s]);
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

std::size_t first_non_finite(std::span<const float> values) {
  const auto not_finite = [](float value) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  };
  // Number of values that the inner loop tests. A compiler does not vectorize a loop that may end at each element.
  constexpr std::size_t kBlock = 1024;
  std::size_t at = 0;
  for (; at + kBlock <= values.size(); at += kBlock) {
    std::uint32_t found = 0;
    for (const float value : values.subspan(at, kBlock)) found |= not_finite(value);
    if (found != 0) break;
  }
  const auto first = std::find_if(values.begin() + static_cast<std::ptrdiff_t>(at), values.end(), not_finite);
  return static_cast<std::size_t>(first - values.begin());
}

}  // namespace collectives
