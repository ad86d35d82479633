// Synthetic digits: images for machines without the MNIST files. Each image is drawn with a few strokes, which are
// bent, turned, sheared and shifted at random. Width, darkness and noise vary, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataset.hpp"

namespace mnist {

/// Returns `train` images for training and `test` images for testing, all different. Image i of a set depends only on
/// the seed and i, so every rank draws the same images. Each digit occurs about equally often, in random order. An
/// image takes about 20 microseconds.
Data draw_digits(std::size_t train, std::size_t test, std::uint64_t seed);

}  // namespace mnist
