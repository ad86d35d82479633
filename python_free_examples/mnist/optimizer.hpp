// Gradient descent as in TensorFlow's Keras. With the gradient g and the learning rate a:
//
//   sgd        w -= a g
//   momentum   v = 0.9 v - a g;  w += v
//   nesterov   v = 0.9 v - a g;  w += 0.9 v - a g
//   adam       m += 0.1 (g - m);  s += 0.001 (g^2 - s);  w -= a sqrt(1 - 0.999^t) / (1 - 0.9^t) m / (sqrt(s) + 1e-7)
//
// The number t counts the updates from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device.hpp"

namespace mnist {

class Optimizer {
 public:
  /// The device must outlive the optimizer. Parameters and state are in its memory.
  Optimizer(OptimizerKind kind, std::size_t parameters, Device& device = processor());

  std::string_view name() const { return kOptimizerNames[static_cast<std::size_t>(kind_)]; }
  /// Returns the default learning rate of a kind.
  static float usual_rate(OptimizerKind);
  /// Updates the parameters once. Every machine and device gives the same bits.
  void apply(std::span<float> parameters, std::span<const float> gradients, float rate);

  /// Returns t, which a checkpoint contains. A checkpoint also contains v, or m and then s, each as long as the
  /// parameters.
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
