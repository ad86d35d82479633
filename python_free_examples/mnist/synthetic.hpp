// Synthetic digits for machines without the MNIST files. A digit is a few strokes that are bent, turned, sheared and
// shifted. Pen width, ink and noise vary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataset.hpp"

namespace mnist {

/// Draws `train` images for training and `test` images for testing, all different. Image i of either set depends only
/// on the seed and i, so every rank draws the same images. The numbers of labels are as equal as possible, in random
/// order. An image takes about 20 microseconds.
Data draw_digits(std::size_t train, std::size_t test, std::uint64_t seed);

}  // namespace mnist
