// Selection of exactly the k elements of greatest magnitude of a vector, on a CPU. If magnitudes are equal, the lower
// index is selected. In most calls the selection reads the vector once.
//
// Elements are compared by their bits without the sign, as integers. This order follows the magnitude and needs no
// floating-point comparison. NaN exceeds infinity, and infinity exceeds all finite values. Values that are not finite
// are therefore always selected, and the caller learns of them.
//
// The vector is the residual, the part of earlier gradients that was not sent, plus the new gradient. In the pass that
// adds them, each element above a threshold, the floor, becomes a candidate. When the memory for candidates is full,
// all but a little more than the k greatest are dropped. The least of these becomes the new floor, because no later
// element below it can be selected. One pass suffices for any input if the first floor is not too high.
//
// The k-th magnitude changes little from one training step to the next. The first floor is therefore a little below the
// k-th magnitude of the last call. If fewer than k candidates are found, a second pass starts without a floor. The
// result depends neither on the floor nor on the instruction set.
//
// Price: a second pass if the floor was too high. If a call fails, the gradient stays added to the residual, because
// only a copy of the residual could restore it exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collectives {

/// Input of a selection, and the vectors that it updates. Vectors that are not empty have the same length, at most
/// 2^32, and do not overlap.
struct SelectionInput {
  std::span<const float> gradient;
  /// Residual: accumulated += scale * gradient, then the selected elements are set to 0. Empty: selects from scale *
  /// gradient.
  std::span<float> accumulated = {};
  /// Velocity for momentum correction (Lin et al., "Deep gradient compression", 2018). velocity = momentum * velocity +
  /// scale * gradient is accumulated in place of the gradient. Requires `accumulated`.
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

  /// Returns the k-th magnitude of the last call, as bits. The next call starts from it. 0: none. It never changes a
  /// result.
  std::uint32_t threshold() const noexcept { return threshold_; }
  void set_threshold(std::uint32_t bits) noexcept {
    threshold_ = bits & 0x7fffffff;
    margin_ = kWidest;
  }

 private:
  // The floor starts below the last threshold by a margin: twice the last change of the threshold, or three quarters of
  // the last margin if that is more. The margin is wide at first and narrow later, because a second pass costs more
  // than some extra candidates. Its maximum in bits is an eighth of an octave, that is, a ninth to a sixteenth of the
  // threshold. Its minimum is a sixteenth of the maximum.
  static constexpr std::uint32_t kWidest = 1u << 20, kNarrowest = kWidest / 16;

  std::uint32_t threshold_ = 0;
  std::uint32_t margin_ = kWidest;
  // Candidates. They are kept between calls, so that later calls allocate no memory.
  std::vector<std::uint32_t> indices_, bits_;
};

}  // namespace collectives
