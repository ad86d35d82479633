// Communicates one gradient while the next one is computed.   collectives_run -n 4 02_async_overlap
//
// The library sends and receives only inside its functions. A program therefore calls test() between parts of its work.
// With a spare core, it can use a progress thread instead.
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

namespace {

constexpr int kLayers = 4;

/// Stands for the backward pass of a training step. Every element of the gradient of layer l on rank r is l + r.
std::vector<float> backward(int layer, int rank) {
  return std::vector<float>(100'000, static_cast<float>(layer + rank));
}

}  // namespace

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();

  std::vector<std::vector<float>> gradients(kLayers), averages(kLayers);
  std::vector<collectives::Work> works;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    gradients[l] = backward(layer, comm.rank());
    averages[l].resize(gradients[l].size());
    works.push_back(comm.all_reduce_async(gradients[l], averages[l], collectives::ReduceOp::average));
    for (collectives::Work& work : works) work.test();  // progresses the started all-reduces without waiting
  }
  for (collectives::Work& work : works) work.wait();

  const float mean_rank = static_cast<float>(comm.size() - 1) / 2;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const float value : averages[static_cast<std::size_t>(layer)]) {
      if (value != static_cast<float>(layer) + mean_rank) return 1;
    }
  }
  if (comm.rank() == 0) std::printf("%d gradients averaged over %d ranks while computing\n", kLayers, comm.size());
}
