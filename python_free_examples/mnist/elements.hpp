// What is done with one element, one image, one window: code that a processor and a GPU compile alike, and round alike.
// A GPU's threads call it from kernels, a processor from loops.
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

inline constexpr std::string_view kOptimizerNames[] = {"sgd", "momentum", "nesterov", "adam"};  // by OptimizerKind

// The updates of optimizer.hpp, of one weight w with the gradient g.

MNIST_SHARED void update_sgd(float& w, float g, float rate) { w -= rate * g; }

MNIST_SHARED void update_momentum(float& w, float& v, float g, float rate) {
  v = 0.9f * v - rate * g;
  w += v;
}

MNIST_SHARED void update_nesterov(float& w, float& v, float g, float rate) {
  v = 0.9f * v - rate * g;
  w += 0.9f * v - rate * g;
}

/// `rate`: with both corrections for t in it.
MNIST_SHARED void update_adam(float& w, float& m, float& s, float g, float rate) {
  m += 0.1f * (g - m);
  s += 0.001f * (g * g - s);
  w -= rate * m / (sqrtf(s) + 1e-7f);
}

struct ImageScore {
  float loss;
  std::uint32_t correct;  ///< 1 where the largest logit, the first of equals, is the label, else 0
};

/// Softmax cross-entropy of one image: with m the largest logit, log(sum exp(x - m)) - (x[label] - m). `gradient`,
/// unless null, receives scale (softmax - one-hot).
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

/// A window of 2 x 2 values in a picture of `columns` columns: the largest, the first of equals, and where it stands.
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

/// How pictures, ordered (image, channel, row, column), become features, ordered (image, row, column, channel), when
/// windows of 2 x 2 become one each. Counts are of the windows: a picture has twice as many rows and columns.
struct Pooling {
  std::size_t channels, rows, columns;

  /// Windows are counted as they lie in the pictures. Where the corner of window `i` lies in the pictures.
  MNIST_SHARED std::size_t corner(std::size_t i) const {
    return i / columns * 4 * columns + i % columns * 2;  // a row of windows is two rows of values
  }
  /// The feature that window `i` becomes.
  MNIST_SHARED std::size_t feature(std::size_t i) const {
    const std::size_t column = i % columns, row = i / columns % rows;
    const std::size_t channel = i / (columns * rows) % channels, image = i / (columns * rows * channels);
    return ((image * rows + row) * columns + column) * channels + channel;
  }
};

}  // namespace mnist
