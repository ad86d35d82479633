// Kernels of the trainer: the computations that cuBLAS and cuDNN do not provide. Each kernel is the body of a loop, for
// one index. A GPU runs each index in a thread. A test compiles this file for a CPU, which runs the indices in a loop.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "elements.hpp"
#include "gpu/check.hpp"

namespace mnist::cuda {

#ifdef __CUDACC__
template <class Body>
__global__ void each_kernel(std::size_t count, Body body) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) body(i);
}

/// Runs body(i) for 0 <= i < count, in any order, in the stream.
template <class Body>
void each(cudaStream_t stream, std::size_t count, const Body& body) {
  if (count == 0) return;
  constexpr std::size_t kThreads = 256, kMostBlocks = 4096;
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
  each_kernel<<<blocks, kThreads, 0, stream>>>(count, body);
  check(cudaGetLastError(), "launch");
}
#else
template <class Body>
void each(cudaStream_t stream, std::size_t count, const Body& body) {
  fake_cuda::enqueue(stream, [count, body] {
    for (std::size_t i = 0; i < count; ++i) body(i);
  });
}
#endif

struct Add {
  float* sum;
  const float* more;
  MNIST_SHARED void operator()(std::size_t i) const { sum[i] += more[i]; }
};

struct Sgd {
  float* w;
  const float* g;
  float rate;
  MNIST_SHARED void operator()(std::size_t i) const { update_sgd(w[i], g[i], rate); }
};
struct Momentum {
  float *w, *v;
  const float* g;
  float rate;
  MNIST_SHARED void operator()(std::size_t i) const { update_momentum(w[i], v[i], g[i], rate); }
};
struct Nesterov {
  float *w, *v;
  const float* g;
  float rate;
  MNIST_SHARED void operator()(std::size_t i) const { update_nesterov(w[i], v[i], g[i], rate); }
};
struct Adam {
  float *w, *m, *s;
  const float* g;
  float rate;
  MNIST_SHARED void operator()(std::size_t i) const { update_adam(w[i], m[i], s[i], g[i], rate); }
};

/// Adds the bias to y (images x outputs). Clears negative results if `relu`.
struct AddBias {
  float* y;
  const float* bias;
  std::size_t outputs;
  bool relu;
  MNIST_SHARED void operator()(std::size_t i) const {
    const float value = y[i] + bias[i % outputs];
    y[i] = relu && value < 0 ? 0.0f : value;
  }
};
/// Clears the gradient at elements with the ReLU's output 0.
struct ReluBackward {
  float* gradient;
  const float* y;
  MNIST_SHARED void operator()(std::size_t i) const {
    if (!(y[i] > 0)) gradient[i] = 0;
  }
};

inline constexpr std::uint8_t kNowhere = 4;  ///< the window has no value above zero

/// Computes for each window its feature and the place of the maximum.
struct MaxPoolRelu {
  Pooling shape;
  const float* pictures;
  float* features;
  std::uint8_t* places;
  MNIST_SHARED void operator()(std::size_t i) const {
    const Window window = look_into_window(pictures + shape.corner(i), 2 * shape.columns);
    features[shape.feature(i)] = window.largest < 0 ? 0.0f : window.largest;
    places[i] = window.largest > 0 ? window.place : kNowhere;
  }
};
/// Computes for each window the gradients of its four values.
struct MaxPoolReluBackward {
  Pooling shape;
  const float* feature_gradients;
  const std::uint8_t* places;
  float* picture_gradients;
  MNIST_SHARED void operator()(std::size_t i) const {
    float* const corner = picture_gradients + shape.corner(i);
    const float gradient = feature_gradients[shape.feature(i)];
    for (std::uint8_t place = 0; place < 4; ++place)
      corner[place_in_window(place, 2 * shape.columns)] = place == places[i] ? gradient : 0.0f;
  }
};

/// Computes loss and gradients for each image.
struct CrossEntropy {
  const float* logits;
  const std::uint8_t* labels;
  float scale;
  float* gradients;  ///< may be null
  ImageScore* scores;
  MNIST_SHARED void operator()(std::size_t i) const {
    scores[i] =
        score_image(logits + i * kClasses, labels[i], scale, gradients == nullptr ? nullptr : gradients + i * kClasses);
  }
};

}  // namespace mnist::cuda
