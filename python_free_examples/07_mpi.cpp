// Uses the ranks of an MPI communicator, in a program that already uses MPI. mpirun -np 4 07_mpi
#include <collectives/collectives.hpp>
#include <collectives/mpi.hpp>
#include <cstdio>
#include <vector>

namespace {

/// Returns whether the library and MPI compute the same sum. All objects of the library end with this function, because
/// main() finalizes MPI after it.
bool same_sum() {
  collectives::Communicator comm(collectives::MpiBootstrap(MPI_COMM_WORLD));
  const std::vector<double> mine(5000, 1.0 + comm.rank());
  std::vector<double> ours(mine.size()), theirs(mine.size());
  comm.all_reduce(mine, ours);
  MPI_Allreduce(mine.data(), theirs.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (comm.rank() == 0) {
    std::printf("%d ranks over %s: collectives %g, MPI %g\n", comm.size(), std::string(comm.transport()).c_str(),
                ours[0], theirs[0]);
  }
  return ours == theirs;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const bool same = same_sum();
  MPI_Finalize();
  return same ? 0 : 1;
}
