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
#include <vector>

namespace mnist {

enum class OptimizerKind : std::uint8_t { sgd, momentum, nesterov, adam };

inline constexpr std::string_view kOptimizerNames[] = {"sgd", "momentum", "nesterov", "adam"};  // by OptimizerKind

class Optimizer {
 public:
  Optimizer(OptimizerKind kind, std::size_t parameters);

  std::string_view name() const { return kOptimizerNames[static_cast<std::size_t>(kind_)]; }
  /// The rate that suits the kind when nobody names one.
  static float usual_rate(OptimizerKind);
  /// Moves the parameters one update down the gradients. Every element on its own and every operation rounded by IEEE
  /// 754, so equal inputs give equal bits on every machine.
  void apply(std::span<float> parameters, std::span<const float> gradients, float rate);

  /// What a checkpoint must hold: t, and v or m then s, each as long as the parameters.
  std::uint64_t& updates() { return updates_; }
  std::uint64_t updates() const { return updates_; }
  std::span<float> state() { return state_; }
  std::span<const float> state() const { return state_; }

 private:
  OptimizerKind kind_;
  std::uint64_t updates_ = 0;
  std::vector<float> state_;
};

}  // namespace mnist
