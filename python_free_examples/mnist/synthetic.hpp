// Digits that the program draws itself, for machines without the real ones: each is a few strokes, bent, turned,
// sheared, shifted, drawn with a pen of its own width and ink, and sprinkled with noise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataset.hpp"

namespace mnist {

/// `train` images to learn from and `test` held-out ones, all different. Image i of either set depends on the seed and
/// i only, so every rank draws the same; labels are as balanced as the counts allow, in no order. Cost: about 20
/// microseconds per image.
Data draw_digits(std::size_t train, std::size_t test, std::uint64_t seed);

}  // namespace mnist
