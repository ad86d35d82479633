// Sends only the largest tenth of the elements of each gradient (top-k compression). The other elements are added to a
// residual, which later calls send, so no value is lost.
//
//   collectives_run -n 3 12_compress_with_error_feedback
//
// Between ranks of one host, top-k normally sends the whole gradient, because compression saves no time there. The
// option `force` compresses in any case.
#include <algorithm>
#include <cmath>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  constexpr std::size_t kCount = 1000;
  constexpr int kSteps = 100;

  // Each rank has a target for every weight, and its gradient moves the weight towards this target. All ranks together
  // move the weight to the mean target.
  const auto wish = [](int rank, std::size_t i) { return static_cast<float>(i % 10) + static_cast<float>(rank); };
  std::vector<float> weights(kCount), gradient(kCount);

  collectives::TopK top_k({.density = 0.1});  // keeps a residual for each tensor name
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = weights[i] - wish(comm.rank(), i);
    comm.all_reduce(gradient, collectives::ReduceOp::average, {.name = "weights", .compressor = &top_k, .force = true});
    for (std::size_t i = 0; i < kCount; ++i) weights[i] -= 0.05F * gradient[i];
  }

  // All weights reach the mean, because the residual grows until its elements are sent. Without a residual, small
  // elements would never be sent.
  const float mean_rank = static_cast<float>(comm.size() - 1) / 2;
  float farthest = 0;
  for (std::size_t i = 0; i < kCount; ++i) farthest = std::max(farthest, std::abs(weights[i] - wish(0, i) - mean_rank));
  const collectives::TopKReport report = top_k.report("weights");
  if (comm.rank() == 0) {
    std::printf("%s\n%zu of %zu elements in %llu bytes a step; after %d steps no weight is off by more than %.2f\n",
                report.reason.c_str(), report.chosen, report.count, static_cast<unsigned long long>(report.sent_bytes),
                kSteps, static_cast<double>(farthest));
  }
  // The residuals as bytes. A program that is restarted passes them to load(), and continues as if it had not ended.
  const std::vector<std::byte> kept = top_k.save();
  return farthest < 1 && !kept.empty() ? 0 : 1;
}
