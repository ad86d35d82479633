// Selection: exactly the k elements of greatest magnitude, ties to the lowest index, in about one pass over memory.
//
// The order is that of the bits without the sign, as an integer: monotone in magnitude, no floating-point compare, and
// NaN above infinity above all that is finite, so that what is not finite is always chosen and seen. From one step to
// the next the k-th magnitude of a gradient changes little: everything not far below that of the last step is collected
// while the new gradient is added, and the exact choice is made among those few. Only when they are too few or too many
// is the whole vector looked at again, digit by digit (radix selection). What is chosen depends on neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collectives {

/// What the elements are chosen from, and what becomes of it. All spans given have the same length, at most 2^32.
struct SelectionInput {
  std::span<const float> gradient;
  /// Error feedback: accumulated += scale * gradient, chosen elements are then 0. Empty: chosen from scale * gradient.
  std::span<float> accumulated = {};
  /// Momentum correction (Lin et al., "Deep gradient compression", 2018): velocity = momentum * velocity + scale *
  /// gradient is accumulated in place of the gradient, and masked (0) where elements are chosen. Needs `accumulated`.
  std::span<float> velocity = {};
  float momentum = 0;
  float scale = 1;  ///< 1: not multiplied at all
};

class Selector {
 public:
  /// Adds the gradient and chooses min(k, length) elements: their indices, ascending, and values.
  /// `indices` and `values` have room for that many. Returns how many of the chosen are not finite.
  std::size_t select(const SelectionInput& input, std::size_t k, std::uint32_t* indices, float* values);

  /// The k-th magnitude of the last call, as bits, from which the next one starts; 0: none. Never changes a result.
  std::uint32_t threshold() const noexcept { return threshold_; }
  void set_threshold(std::uint32_t bits) noexcept { threshold_ = bits; }

 private:
  std::uint32_t threshold_ = 0;
  // Kept between calls, so that the second and later ones allocate nothing.
  std::vector<std::uint32_t> candidate_indices_, candidate_keys_;
};

}  // namespace collectives
