// Fuses fifty small tensors into one all-reduce.   collectives_run -n 4 03_group
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();

  std::vector<std::vector<float>> tensors;
  for (int i = 0; i < 50; ++i) tensors.emplace_back(static_cast<std::size_t>(i), static_cast<float>(comm.rank() + i));

  collectives::Group group = comm.group();
  for (auto& tensor : tensors) group.all_reduce(tensor, tensor, collectives::ReduceOp::max);  // in place
  // sums all tensors by one call, not by fifty
  group.run();

  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (const float value : tensors[i]) {
      if (value != static_cast<float>(comm.size() - 1) + static_cast<float>(i)) return 1;
    }
  }
  if (comm.rank() == 0) std::printf("%zu tensors reduced in one call over %d ranks\n", tensors.size(), comm.size());
}
