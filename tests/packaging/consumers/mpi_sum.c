/* A C program outside the project, which the packaging tests build: two ranks, started by MPI, add numbers. */
#include <collectives/collectives_mpi.h>

int main(int argc, char** argv) {
  collectives_communicator* comm;
  float mine, sum = 0;
  MPI_Init(&argc, &argv);
  if (collectives_communicator_from_mpi(MPI_COMM_WORLD, NULL, &comm) != COLLECTIVES_SUCCESS) return 1;
  mine = (float)collectives_rank(comm) + 1;
  collectives_all_reduce(comm, &mine, &sum, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL);
  collectives_communicator_free(comm);
  MPI_Finalize();
  return sum == 3 ? 0 : 1;
}
