// Sums one vector of every rank.   collectives_run -n 4 01_all_reduce
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  // A launcher has set the rank and the number of ranks in environment variables: mpirun, srun, torchrun,
  // collectives_run or TF_CONFIG. Without a launcher, this process is the only rank.
  collectives::Communicator comm = collectives::Communicator::from_environment();

  const std::vector<float> mine(1000, static_cast<float>(comm.rank() + 1));
  std::vector<float> sum(mine.size());
  comm.all_reduce(mine, sum, collectives::ReduceOp::sum);

  const float expected = static_cast<float>(comm.size() * (comm.size() + 1)) / 2;  // 1 + 2 + ... + size
  for (const float value : sum) {
    if (value != expected) return 1;
  }
  std::printf("rank %d of %d: I gave %g, the sum is %g\n", comm.rank(), comm.size(), static_cast<double>(mine[0]),
              static_cast<double>(sum[0]));
}
