// Gradient descent, as TensorFlow's Keras defines it. With g the gradient and a the learning rate:
//
//   sgd        w -= a g
//   momentum   v = 0.9 v - a g;  w += v
//   nesterov   v = 0.9 v - a g;  w += 0.9 v - a g
//   adam       m += 0.1 (g - m);  s += 0.001 (g^2 - s);  w -= a sqrt(1 - 0.999^t) / (1 - 0.9^t) m / (sqrt(s) + 1e-7)
//
// where t counts the updates from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device.hpp"

namespace mnist {

class Optimizer {
 public:
  /// The device outlives the optimizer; what it updates and its state are in that memory.
  Optimizer(OptimizerKind kind, std::size_t parameters, Device& device = processor());

  std::string_view name() const { return kOptimizerNames[static_cast<std::size_t>(kind_)]; }
  /// The rate that suits the kind when nobody names one.
  static float usual_rate(OptimizerKind);
  /// Moves the parameters one update down the gradients, with the same bits on every machine and device.
  void apply(std::span<float> parameters, std::span<const float> gradients, float rate);

  /// What a checkpoint must hold: t, and v or m then s, each as long as the parameters.
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
