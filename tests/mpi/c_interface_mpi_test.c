// Tests of communicators that a C99 program makes from an MPI_Comm, under mpirun. It sums the numbers of the ranks in a
// communicator of MPI_COMM_WORLD, and in one that is split from it.
#include <collectives/collectives_mpi.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, collectives_last_error());
  return 1;
}

static int sums_ranks(MPI_Comm mpi_comm) {
  int rank, size;
  MPI_Comm_rank(mpi_comm, &rank);
  MPI_Comm_size(mpi_comm, &size);
  collectives_communicator* comm;
  const collectives_communicator_options options = {
      .size = sizeof options, .timeout_seconds = 60, .progress_thread = COLLECTIVES_OFF};
  if (collectives_communicator_from_mpi(mpi_comm, &options, &comm) != COLLECTIVES_SUCCESS) return 0;
  int64_t sum = rank;
  const int ok =
      collectives_rank(comm) == rank && collectives_size(comm) == size &&
      collectives_all_reduce(comm, &sum, &sum, 1, COLLECTIVES_I64, COLLECTIVES_SUM, NULL) == COLLECTIVES_SUCCESS &&
      sum == size * (size - 1) / 2;
  collectives_communicator_free(comm);
  return ok;
}

int main(int argc, char** argv) {
  collectives_communicator* comm;
  if (collectives_communicator_from_mpi(MPI_COMM_WORLD, NULL, &comm) != COLLECTIVES_ERROR_BOOTSTRAP || comm != NULL ||
      strstr(collectives_last_error(), "before MPI_Init") == NULL)
    return failed("before MPI_Init");
  MPI_Init(&argc, &argv);
  if (collectives_communicator_from_mpi(MPI_COMM_WORLD, NULL, NULL) != COLLECTIVES_ERROR_INVALID_ARGUMENT ||
      collectives_communicator_from_mpi(MPI_COMM_NULL, NULL, &comm) != COLLECTIVES_ERROR_INVALID_ARGUMENT)
    return failed("null");
  if (!sums_ranks(MPI_COMM_WORLD)) return failed("all ranks");
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  if (!sums_ranks(half)) return failed("every other rank");
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
