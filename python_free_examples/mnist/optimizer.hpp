// Optimizer: updates the parameters of a model from their gradients, by the formulas of TensorFlow's Keras. With the
// parameter w, its gradient g and the learning rate a:
//
//   sgd        w -= a g
//   momentum   v = 0.9 v - a g;  w += v
//   nesterov   v = 0.9 v - a g;  w += 0.9 v - a g
//   adam       m += 0.1 (g - m);  s += 0.001 (g^2 - s);  w -= a sqrt(1 - 0.999^t) / (1 - 0.9^t) m / (sqrt(s) + 1e-7)
//
// The state v, m and s starts at 0. The number t counts the updates from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device.hpp"

namespace mnist {

class Optimizer {
 public:
  /// Makes the state for `parameters` parameters, in the memory of `device`. The device must outlive the optimizer.
  Optimizer(OptimizerKind kind, std::size_t parameters, Device& device = processor());

  std::string_view name() const { return kOptimizerNames[static_cast<std::size_t>(kind_)]; }
  /// Returns the default learning rate of a kind of optimizer.
  static float usual_rate(OptimizerKind);
  /// Updates all parameters once. Every machine and device gives the same bits.
  void apply(std::span<float> parameters, std::span<const float> gradients, float rate);

  /// Returns t, the number of updates. A checkpoint contains t and the state: v, or m and then s.
  std::uint64_t& updates() { return updates_; }
  std::uint64_t updates() const { return updates_; }
  std::span<float> state() { return state_.span(); }
  std::span<const float> state() const { return state_.span(); }
  Device& device() const { return device_; }

 private:
  OptimizerKind kind_;
  Device& device_;
  std::uint64_t updates_ = 0;
  Vector state_;
};

}  // namespace mnist
