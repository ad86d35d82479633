// Selection of exactly the k elements of greatest magnitude of a vector, on a CPU. If two elements have equal
// magnitudes, the one with the lower index is selected first. In most calls the selection reads the vector once.
//
// Elements are compared by their bits without the sign, as integers. The order of these integers is the order of the
// magnitudes. NaN exceeds infinity, and infinity exceeds all finite values. NaN and infinity are therefore selected
// first. The function select() returns the number of selected values that are not finite.
//
// The vector is the sum of the new gradient and the residual, the part of earlier gradients that was not sent. Without
// a residual, the vector is the gradient. One pass adds the gradient to the residual. This pass also collects the
// candidates for the selection. A candidate is an element whose magnitude exceeds a limit, the floor. If the memory for
// candidates becomes too small, only the greatest candidates remain, k to 1.5 k of them. An element below all remaining
// candidates cannot be selected, so the floor rises to the smallest of them. If the first floor is not too high, one
// pass suffices for any input.
//
// The k-th greatest magnitude changes little from one training step to the next. The first floor of a call is therefore
// a little below the k-th greatest magnitude of the previous call. If the pass finds fewer than k candidates, the first
// floor was too high, and a second pass runs without a floor. The first floor never changes the result.
//
// Price: a call reads the vector twice if the first floor was too high. If a call fails, the gradient stays added to
// the residual, because only a copy of the residual could restore it exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collectives {

/// Input of a selection, and the vectors that it updates. Nonempty vectors have the same length, at most 2^32, and do
/// not overlap.
struct SelectionInput {
  std::span<const float> gradient;
  /// Residual. The selection adds scale * gradient to it, and sets the selected elements to 0. Empty: selects from
  /// scale * gradient.
  std::span<float> accumulated = {};
  /// Velocity for momentum correction (Lin et al., "Deep gradient compression", 2018). The selection sets velocity =
  /// momentum * velocity + scale * gradient, and adds the velocity to `accumulated` in place of the gradient. Requires
  /// `accumulated`.
  std::span<float> velocity = {};
  float momentum = 0;
  float scale = 1;      ///< Factor of the gradient. 1: no multiplication.
  bool masking = true;  ///< True: the velocity of selected elements is set to 0.
};

class Selector {
 public:
  /// Adds the gradient and selects min(k, length) elements. Writes their indices in ascending order and their values.
  /// `indices` and `values` must have space for them. Returns the number of selected values that are not finite. All
  /// instruction sets give the same bits, except for the payload of a NaN that results from two NaNs.
  std::size_t select(const SelectionInput& input, std::size_t k, std::uint32_t* indices, float* values);

  /// Returns the k-th greatest magnitude of the last call, as the bits of a float; 0: none. It sets the first floor of
  /// the next call. It never changes a result.
  std::uint32_t threshold() const noexcept { return threshold_; }
  void set_threshold(std::uint32_t bits) noexcept {
    threshold_ = bits & 0x7fffffff;
    margin_ = kWidest;
  }

 private:
  // Margin: the distance of the first floor below the last threshold, in units of the last bit of a float. The next
  // margin is twice the last change of the threshold, or three quarters of the last margin if that is more. It begins
  // at its maximum, because a second pass costs more than some extra candidates. The maximum is an eighth of an octave,
  // that is, a ninth to a sixteenth of the threshold. The minimum is a sixteenth of the maximum.
  static constexpr std::uint32_t kWidest = 1u << 20, kNarrowest = kWidest / 16;

  std::uint32_t threshold_ = 0;
  std::uint32_t margin_ = kWidest;
  // Indices and values (as bits) of the candidates. The memory is kept between calls, so that later calls allocate
  // none.
  std::vector<std::uint32_t> indices_, bits_;
};

}  // namespace collectives
