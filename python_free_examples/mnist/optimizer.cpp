// One loop per kind, written for the vectoriser, which makes one version for each width of vector. The file is compiled
// without contraction to fused multiply-add, so that all versions give the same bits.
#include "optimizer.hpp"

#include <cmath>

// Sanitizers cannot see into the choice between versions, which the loader makes.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MNIST_EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MNIST_EVERY_WIDTH
#endif

namespace mnist {
namespace {

constexpr float kMomentum = 0.9f;
constexpr float kAdamMean = 0.1f, kAdamSquare = 0.001f, kAdamEpsilon = 1e-7f;  // 1 - 0.9, 1 - 0.999

std::size_t slots(OptimizerKind kind) { return kind == OptimizerKind::sgd ? 0 : kind == OptimizerKind::adam ? 2 : 1; }

MNIST_EVERY_WIDTH void apply_sgd(std::size_t count, float* __restrict w, const float* __restrict g, float rate) {
  for (std::size_t i = 0; i < count; ++i) w[i] -= rate * g[i];
}

MNIST_EVERY_WIDTH void apply_momentum(std::size_t count, float* __restrict w, float* __restrict v,
                                      const float* __restrict g, float rate) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = kMomentum * v[i] - rate * g[i];
    w[i] += v[i];
  }
}

MNIST_EVERY_WIDTH void apply_nesterov(std::size_t count, float* __restrict w, float* __restrict v,
                                      const float* __restrict g, float rate) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = kMomentum * v[i] - rate * g[i];
    w[i] += kMomentum * v[i] - rate * g[i];
  }
}

MNIST_EVERY_WIDTH void apply_adam(std::size_t count, float* __restrict w, float* __restrict m, float* __restrict s,
                                  const float* __restrict g, float corrected_rate) {
  for (std::size_t i = 0; i < count; ++i) {
    m[i] += kAdamMean * (g[i] - m[i]);
    s[i] += kAdamSquare * (g[i] * g[i] - s[i]);
    w[i] -= corrected_rate * m[i] / (std::sqrt(s[i]) + kAdamEpsilon);
  }
}

}  // namespace

Optimizer::Optimizer(OptimizerKind kind, std::size_t parameters) : kind_(kind), state_(slots(kind) * parameters) {}

float Optimizer::usual_rate(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? 0.1f : kind == OptimizerKind::adam ? 0.001f : 0.05f;
}

void Optimizer::apply(std::span<float> parameters, std::span<const float> gradients, float rate) {
  ++updates_;
  const std::size_t count = parameters.size();
  float* w = parameters.data();
  const float* g = gradients.data();
  float* v = state_.data();
  switch (kind_) {
    case OptimizerKind::sgd: apply_sgd(count, w, g, rate); break;
    case OptimizerKind::momentum: apply_momentum(count, w, v, g, rate); break;
    case OptimizerKind::nesterov: apply_nesterov(count, w, v, g, rate); break;
    case OptimizerKind::adam: {
      const auto t = static_cast<double>(updates_);
      const double correction = std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
      apply_adam(count, w, v, v + count, g, static_cast<float>(rate * correction));
      break;
    }
  }
}

}  // namespace mnist
