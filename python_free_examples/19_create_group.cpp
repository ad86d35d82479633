// Makes a communicator of some ranks without the others.   collectives_run -n 4 19_create_group
//
// Unlike split(), create_group() is called by its members only. The other ranks may be in any other call.
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator world = collectives::Communicator::from_environment();

  // Rank 0 only reads input, so the other ranks compute without it.
  std::vector<collectives::Rank> workers;
  for (int rank = 1; rank < world.size(); ++rank) workers.push_back(rank);

  int sum = 0;
  if (world.rank() > 0) {
    collectives::Communicator of_workers = world.create_group(workers, "workers");
    // The member workers[i] has rank i in the new communicator.
    if (workers[static_cast<std::size_t>(of_workers.rank())] != world.rank()) return 1;
    const std::vector<int> mine{world.rank()};
    std::vector<int> total(1);
    of_workers.all_reduce(mine, total, collectives::ReduceOp::sum);
    sum = total[0];
  }

  // Each call on `world` needs all ranks again.
  std::vector<int> largest{sum};
  world.all_reduce(largest, collectives::ReduceOp::max);
  if (largest[0] != world.size() * (world.size() - 1) / 2) return 1;
  if (world.rank() == 0) std::printf("the ranks of %d workers have the sum %d\n", world.size() - 1, largest[0]);
}
