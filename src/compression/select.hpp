// Selection: exactly the k elements of greatest magnitude, ties to the lowest index, in about one pass over memory.
//
// The order is that of the bits without the sign, as an integer: monotone in magnitude, no floating-point compare, and
// NaN above infinity above all that is finite, so that what is not finite is always chosen and seen.
//
// While the gradient is added, everything above a floor becomes a candidate. When there is no room for more candidates,
// few more than the k greatest stay, and the least of those is the new floor: no later element below it can be chosen.
// So one pass suffices, whatever the input, if the floor it starts from was not too high. From one step to the next the
// k-th magnitude of a gradient changes little: the floor starts a little below that of the last call. If fewer than k
// candidates are found, a second pass starts from no floor at all. What is chosen depends on none of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collectives {

/// What the elements are chosen from, and what becomes of it. All spans given have the same length, at most 2^32, and
/// do not overlap.
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
  /// The same bits from every instruction set; where NaN meets NaN, which payload wins is open.
  std::size_t select(const SelectionInput& input, std::size_t k, std::uint32_t* indices, float* values);

  /// The k-th magnitude of the last call, as bits, from which the next one starts; 0: none. Never changes a result.
  std::uint32_t threshold() const noexcept { return threshold_; }
  void set_threshold(std::uint32_t bits) noexcept {
    threshold_ = bits & 0x7fffffff;
    margin_ = kWidest;
  }

 private:
  // The floor starts below the last threshold by twice as much as that changed, or by three quarters of what it was
  // before: wide at once, narrow after a while, since a second pass costs more than some candidates. In bits: an eighth
  // of an octave at most, which is a ninth to a sixteenth of the threshold, and a sixteenth of that at least.
  static constexpr std::uint32_t kWidest = 1u << 20, kNarrowest = kWidest / 16;

  std::uint32_t threshold_ = 0;
  std::uint32_t margin_ = kWidest;
  // Candidates. Kept between calls, so that the second and later ones allocate nothing.
  std::vector<std::uint32_t> indices_, bits_;
};

}  // namespace collectives
