// Ranks of an MPI communicator, in a program that uses MPI already.   mpirun -np 4 07_mpi
#include <collectives/collectives.hpp>
#include <collectives/mpi.hpp>
#include <cstdio>
#include <vector>

namespace {

/// Returns whether a sum of the library equals that of MPI. Destroys every object that was made from MPI, because
/// main() then finalizes MPI.
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
