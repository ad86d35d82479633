// Implementation of the profile, which shows how much time each call of a training step takes. Each round times a few
// whole steps, and a few executions of every single call. A slow phase of the machine thus affects both. Times are CPU
// times of this thread, so other programs affect them only through the caches.
#include "profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include "sharding.hpp"
#include "trainer.hpp"

namespace mnist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 10;  // executions of each call in a round

double processor_microseconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

class Samples {
 public:
  template <class Action>
  void time(Action&& action) {
    const double start = processor_microseconds();
    action();
    microseconds_.push_back(processor_microseconds() - start);
  }
  double median() {
    const auto middle = microseconds_.begin() + static_cast<std::ptrdiff_t>(microseconds_.size() / 2);
    std::nth_element(microseconds_.begin(), middle, microseconds_.end());
    return *middle;
  }

 private:
  std::vector<double> microseconds_;
};

}  // namespace

double profile_step(Model& model, Optimizer& optimizer, float rate, const Dataset& data, std::size_t batch,
                    double seconds) {
  batch = std::min(batch, data.size());
  const std::vector<std::uint32_t> order = epoch_order(data.size(), 1, 0);
  const std::size_t whole_batches = data.size() / batch;
  std::size_t at = 0;
  const auto step = [&] {
    const auto indices = std::span(order).subspan(at++ % whole_batches * batch, batch);
    compute_gradients(model, data, indices, 1.0f / static_cast<float>(batch), [](std::size_t) {});
    optimizer.apply(model.parameters(), model.gradients(), rate);
  };
  step();  // the first step builds the passes

  const Pass& pass = model.training_pass(batch);
  std::vector<const Call*> calls;
  for (const auto* part : {&pass.forward, &pass.backward})
    for (const Call& call : *part) calls.push_back(&call);
  Samples whole;
  std::vector<Samples> alone(calls.size());
  const auto start = Clock::now();
  do {
    for (int i = 0; i < kRepeats; ++i) whole.time(step);
    for (std::size_t c = 0; c < calls.size(); ++c)
      for (int i = 0; i < kRepeats; ++i) alone[c].time(calls[c]->execute);
  } while (Clock::now() - start < std::chrono::duration<double>(seconds));

  double sum = 0;
  fmt::print("one step of {}, {} images, {}: median microseconds of processor time\n", model.name(), batch,
             optimizer.name());
  for (std::size_t c = 0; c < calls.size(); ++c) {
    const double median = alone[c].median();
    sum += median;
    fmt::print("  {:<36} {:>9.1f}\n", calls[c]->name, median);
  }
  const double ratio = whole.median() / sum;
  fmt::print("  {:<36} {:>9.1f}\n  {:<36} {:>9.1f}\n  {:<36} {:>9.2f}\n", "sum of the calls, each alone", sum,
             "whole step", whole.median(), "ratio", ratio);
  return ratio;
}

}  // namespace mnist
