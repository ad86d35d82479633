// Implementation of the optimizer, which updates the parameters of a model from their gradients (optimizer.hpp). This
// file allocates the state of the optimizer. It also computes the factor of the learning rate of adam, which depends on
// t, the number of updates. The device performs the update itself.
#include "optimizer.hpp"

#include <cmath>

namespace mnist {
namespace {

std::size_t slots(OptimizerKind kind) { return kind == OptimizerKind::sgd ? 0 : kind == OptimizerKind::adam ? 2 : 1; }

}  // namespace

Optimizer::Optimizer(OptimizerKind kind, std::size_t parameters, Device& device)
    : kind_(kind), device_(device), state_(device.make(slots(kind) * parameters)) {}

float Optimizer::usual_rate(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? 0.1f : kind == OptimizerKind::adam ? 0.001f : 0.05f;
}

void Optimizer::apply(std::span<float> parameters, std::span<const float> gradients, float rate) {
  ++updates_;
  if (kind_ == OptimizerKind::adam) {
    const auto t = static_cast<double>(updates_);
    rate = static_cast<float>(rate * (std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t))));
  }
  device_.update(kind_, parameters, gradients, state_.span(), rate);
}

}  // namespace mnist
