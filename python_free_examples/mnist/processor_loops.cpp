// Loops of the trainer on the CPU: the update of each kind of optimizer, and the addition of gradients. The compiler
// makes one version of each loop per width of vector registers. Multiplications and additions are not fused in this
// file, so all versions give the same bits.
#include "processor.hpp"

// With sanitizers, there is only one version, because sanitizers do not support the choice of a version by the dynamic
// loader.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MNIST_EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MNIST_EVERY_WIDTH
#endif

namespace mnist {
namespace {

MNIST_EVERY_WIDTH void sgd(std::size_t count, float* __restrict w, const float* __restrict g, float rate) {
  for (std::size_t i = 0; i < count; ++i) update_sgd(w[i], g[i], rate);
}

MNIST_EVERY_WIDTH void momentum(std::size_t count, float* __restrict w, float* __restrict v, const float* __restrict g,
                                float rate) {
  for (std::size_t i = 0; i < count; ++i) update_momentum(w[i], v[i], g[i], rate);
}

MNIST_EVERY_WIDTH void nesterov(std::size_t count, float* __restrict w, float* __restrict v, const float* __restrict g,
                                float rate) {
  for (std::size_t i = 0; i < count; ++i) update_nesterov(w[i], v[i], g[i], rate);
}

MNIST_EVERY_WIDTH void adam(std::size_t count, float* __restrict w, float* __restrict m, float* __restrict s,
                            const float* __restrict g, float rate) {
  for (std::size_t i = 0; i < count; ++i) update_adam(w[i], m[i], s[i], g[i], rate);
}

MNIST_EVERY_WIDTH void add(std::size_t count, float* __restrict sum, const float* __restrict more) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
}

}  // namespace

void add_in_loop(std::span<const float> more, std::span<float> sum) { add(sum.size(), sum.data(), more.data()); }

void update_in_loop(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                    std::span<float> state, float rate) {
  const std::size_t count = weights.size();
  float *w = weights.data(), *v = state.data();
  const float* g = gradients.data();
  switch (kind) {
    case OptimizerKind::sgd: return sgd(count, w, g, rate);
    case OptimizerKind::momentum: return momentum(count, w, v, g, rate);
    case OptimizerKind::nesterov: return nesterov(count, w, v, g, rate);
    case OptimizerKind::adam: return adam(count, w, v, v + count, g, rate);
  }
}

}  // namespace mnist
