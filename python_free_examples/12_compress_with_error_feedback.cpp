// Sends only the largest tenth of each gradient. The rest stays in a residual and is sent by later calls, so no value
// is lost.
//
//   collectives_run -n 3 12_compress_with_error_feedback
//
// Ranks of one host would normally send the whole gradient, because they save no time on a wire. `force` compresses
// in any case.
#include <algorithm>
#include <cmath>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  constexpr std::size_t kCount = 1000;
  constexpr int kSteps = 100;

  // Each rank pulls every weight towards its own target. The best weight for all ranks is the mean of the targets.
  const auto wish = [](int rank, std::size_t i) { return static_cast<float>(i % 10) + static_cast<float>(rank); };
  std::vector<float> weights(kCount), gradient(kCount);

  collectives::TopK top_k({.density = 0.1});  // keeps a residual for each tensor name
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = weights[i] - wish(comm.rank(), i);
    comm.all_reduce(gradient, collectives::ReduceOp::average, {.name = "weights", .compressor = &top_k, .force = true});
    for (std::size_t i = 0; i < kCount; ++i) weights[i] -= 0.05F * gradient[i];
  }

  // With the residual, all weights converge. Without a residual, the small gradients would never be sent.
  const float mean_rank = static_cast<float>(comm.size() - 1) / 2;
  float farthest = 0;
  for (std::size_t i = 0; i < kCount; ++i) farthest = std::max(farthest, std::abs(weights[i] - wish(0, i) - mean_rank));
  const collectives::TopKReport report = top_k.report("weights");
  if (comm.rank() == 0) {
    std::printf("%s\n%zu of %zu elements in %llu bytes a step; after %d steps no weight is off by more than %.2f\n",
                report.reason.c_str(), report.chosen, report.count, static_cast<unsigned long long>(report.sent_bytes),
                kSteps, static_cast<double>(farthest));
  }
  // A restarted run passes this state to load() and continues without a break.
  const std::vector<std::byte> kept = top_k.save();
  return farthest < 1 && !kept.empty() ? 0 : 1;
}
