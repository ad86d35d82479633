// Computations on one element, one image or one window of an image. CPU and GPU compile the same code and round
// equally. GPU kernels call it in each thread, and the CPU calls it in loops.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dataset.hpp"

#ifdef __CUDACC__
#define MNIST_SHARED __host__ __device__ __forceinline__
#else
#define MNIST_SHARED inline
#endif

namespace mnist {

enum class OptimizerKind : std::uint8_t { sgd, momentum, nesterov, adam };

inline constexpr std::string_view kOptimizerNames[] = {"sgd", "momentum", "nesterov", "adam"};  // indexed by
                                                                                                // OptimizerKind

// The updates that optimizer.hpp defines, for one weight w with the gradient g.

MNIST_SHARED void update_sgd(float& w, float g, float rate) { w -= rate * g; }

MNIST_SHARED void update_momentum(float& w, float& v, float g, float rate) {
  v = 0.9f * v - rate * g;
  w += v;
}

MNIST_SHARED void update_nesterov(float& w, float& v, float g, float rate) {
  v = 0.9f * v - rate * g;
  w += 0.9f * v - rate * g;
}

/// Updates one weight by Adam. `rate` includes the factor of optimizer.hpp that depends on t.
MNIST_SHARED void update_adam(float& w, float& m, float& s, float g, float rate) {
  m += 0.1f * (g - m);
  s += 0.001f * (g * g - s);
  w -= rate * m / (sqrtf(s) + 1e-7f);
}

struct ImageScore {
  float loss;
  std::uint32_t correct;  ///< 1 if the first of the largest logits is the label, else 0
};

/// Returns the softmax cross-entropy of one image: with m the largest logit, log(sum exp(x - m)) - (x[label] - m).
/// Writes scale (softmax - one-hot) to `gradient` unless it is null.
MNIST_SHARED ImageScore score_image(const float* x, std::uint8_t label, float scale, float* gradient) {
  std::size_t largest = 0;
  for (std::size_t j = 1; j < kClasses; ++j)
    if (x[j] > x[largest]) largest = j;
  float power[kClasses], sum = 0;
  for (std::size_t j = 0; j < kClasses; ++j) sum += power[j] = expf(x[j] - x[largest]);
  if (gradient != nullptr)
    for (std::size_t j = 0; j < kClasses; ++j) gradient[j] = scale * (power[j] / sum - (j == label ? 1.0f : 0.0f));
  return {logf(sum) - (x[label] - x[largest]), largest == label ? 1u : 0u};
}

/// Maximum of a 2 x 2 window in an image of `columns` columns, and the place of its first occurrence.
struct Window {
  float largest;
  std::uint8_t place;  ///< 0 to 3, row by row
};
MNIST_SHARED std::size_t place_in_window(unsigned place, std::size_t columns) {
  return place / 2 * columns + place % 2;
}
MNIST_SHARED Window look_into_window(const float* corner, std::size_t columns) {
  Window window{corner[0], 0};
  for (std::uint8_t place = 1; place < 4; ++place) {
    const float value = corner[place_in_window(place, columns)];
    if (value > window.largest) window = {value, place};
  }
  return window;
}

/// Index arithmetic of the pooling layer, which reduces each window of 2 x 2 values to one feature. The values are in
/// the order (image, channel, row, column), and the features in the order (image, row, column, channel). The fields are
/// numbers of windows, so an image has twice as many rows and columns.
struct Pooling {
  std::size_t channels, rows, columns;

  /// Returns the index of the corner of window `i`. Windows are numbered in the order of the images.
  MNIST_SHARED std::size_t corner(std::size_t i) const {
    return i / columns * 4 * columns + i % columns * 2;  // a row of windows is two rows of values
  }
  /// Returns the index of the feature of window `i`.
  MNIST_SHARED std::size_t feature(std::size_t i) const {
    const std::size_t column = i % columns, row = i / columns % rows;
    const std::size_t channel = i / (columns * rows) % channels, image = i / (columns * rows * channels);
    return ((image * rows + row) * columns + column) * channels + channel;
  }
};

}  // namespace mnist
