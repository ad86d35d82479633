// A program outside the project, which the packaging tests build: two ranks, started by MPI, add numbers, and each
// checks the sum.
#include <collectives/collectives.hpp>
#include <collectives/mpi.hpp>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::vector<float> sum(1000);
  {
    collectives::Communicator comm(collectives::MpiBootstrap(MPI_COMM_WORLD));
    comm.all_reduce(std::vector<float>(1000, static_cast<float>(comm.rank() + 1)), sum);
  }
  MPI_Finalize();
  return sum == std::vector<float>(1000, 3) ? 0 : 1;
}
