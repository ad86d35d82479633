// Tests of the optimizers, which update parameters, and of schedules of learning rates. They compare updates with the
// formulas, computed in double, and schedules with their texts.
#include "optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "schedule.hpp"

namespace mnist {
namespace {

/// Makes three updates of the parameters, and compares each with the formula.
template <class Formula>
void expect_three_updates(OptimizerKind kind, Formula formula) {
  constexpr std::size_t kCount = 37;  // no multiple of the length of a vector register
  Optimizer optimizer(kind, kCount);
  std::vector<float> weights(kCount, 0.5f), gradients(kCount);
  double w = 0.5;
  for (int t = 1; t <= 3; ++t) {
    const double g = 0.3 / t - 0.2, rate = 0.01 * t;
    std::ranges::fill(gradients, static_cast<float>(g));
    optimizer.apply(weights, gradients, static_cast<float>(rate));
    formula(w, g, rate, t);
    for (const float weight : weights) EXPECT_NEAR(weight, w, 1e-6) << t;
  }
  EXPECT_EQ(optimizer.updates(), 3u);
}

TEST(Optimizer, SgdFollowsTheGradient) {
  expect_three_updates(OptimizerKind::sgd, [](double& w, double g, double rate, int) { w -= rate * g; });
}

TEST(Optimizer, MomentumIsKeras) {
  expect_three_updates(OptimizerKind::momentum, [v = 0.0](double& w, double g, double rate, int) mutable {
    v = 0.9 * v - rate * g;
    w += v;
  });
}

TEST(Optimizer, NesterovIsKeras) {
  expect_three_updates(OptimizerKind::nesterov, [v = 0.0](double& w, double g, double rate, int) mutable {
    v = 0.9 * v - rate * g;
    w += 0.9 * v - rate * g;
  });
}

TEST(Optimizer, AdamIsKeras) {
  expect_three_updates(OptimizerKind::adam, [m = 0.0, s = 0.0](double& w, double g, double rate, int t) mutable {
    m = 0.9 * m + 0.1 * g;
    s = 0.999 * s + 0.001 * g * g;
    w -= rate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m / (std::sqrt(s) + 1e-7);
  });
}

TEST(Optimizer, StateIsAsLongAsTheKindNeeds) {
  EXPECT_EQ(Optimizer(OptimizerKind::sgd, 10).state().size(), 0u);
  EXPECT_EQ(Optimizer(OptimizerKind::momentum, 10).state().size(), 10u);
  EXPECT_EQ(Optimizer(OptimizerKind::nesterov, 10).state().size(), 10u);
  EXPECT_EQ(Optimizer(OptimizerKind::adam, 10).state().size(), 20u);
}

TEST(Schedule, TheLectureStepsAtThreeAndSeven) {
  const Schedule schedule = Schedule::parse("lecture");
  for (const std::size_t epoch : {0u, 1u, 2u}) EXPECT_EQ(schedule.rate(epoch), 1e-3f);
  for (const std::size_t epoch : {3u, 6u}) EXPECT_EQ(schedule.rate(epoch), 1e-4f);
  for (const std::size_t epoch : {7u, 8u, 100u}) EXPECT_EQ(schedule.rate(epoch), 1e-5f);
}

TEST(Schedule, AConstantStaysConstant) {
  EXPECT_EQ(Schedule(0.25f).rate(0), 0.25f);
  EXPECT_EQ(Schedule(0.25f).rate(99), 0.25f);
}

TEST(Schedule, WhatDoesNotReadIsQuoted) {
  for (const char* text : {"", "fast", "0", "0:", "0:x", "0:-1", "0:nan", "1:0.1", "0:0.1,", "0:0.1,0:0.2",
                           "0:0.1,5:1,3:1", "0:0.1 ,3:1", "lecture,9:1"})
    EXPECT_THROW(Schedule::parse(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace mnist
