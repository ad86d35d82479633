// Of each gradient only the largest tenth travels; the rest is kept and given later, so that nothing gets lost.
//
//   collectives_run -n 3 12_compress_with_error_feedback
//
// Ranks of one host have no wire to save and would send everything; `force` shows the compression all the same.
#include <algorithm>
#include <cmath>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  constexpr std::size_t kCount = 1000;
  constexpr int kSteps = 100;

  // The ranks pull every weight towards values of their own; the best for all is the mean of these.
  const auto wish = [](int rank, std::size_t i) { return static_cast<float>(i % 10) + static_cast<float>(rank); };
  std::vector<float> weights(kCount), gradient(kCount);

  collectives::TopK top_k({.density = 0.1});  // keeps what was not sent, by the name of the tensor
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = weights[i] - wish(comm.rank(), i);
    comm.all_reduce(gradient, collectives::ReduceOp::average, {.name = "weights", .compressor = &top_k, .force = true});
    for (std::size_t i = 0; i < kCount; ++i) weights[i] -= 0.05F * gradient[i];
  }

  // Without what is kept the small gradients would never be heard; with it all weights arrive.
  const float mean_rank = static_cast<float>(comm.size() - 1) / 2;
  float farthest = 0;
  for (std::size_t i = 0; i < kCount; ++i) farthest = std::max(farthest, std::abs(weights[i] - wish(0, i) - mean_rank));
  const collectives::TopKReport report = top_k.report("weights");
  if (comm.rank() == 0) {
    std::printf("%s\n%zu of %zu elements in %llu bytes a step; after %d steps no weight is off by more than %.2f\n",
                report.reason.c_str(), report.chosen, report.count, static_cast<unsigned long long>(report.sent_bytes),
                kSteps, static_cast<double>(farthest));
  }
  // What a restarted run passes to load(), to go on as if there had been no break.
  const std::vector<std::byte> kept = top_k.save();
  return farthest < 1 && !kept.empty() ? 0 : 1;
}
