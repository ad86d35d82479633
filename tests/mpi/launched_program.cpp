// A program that constructs an MpiBootstrap, and prints its number of ranks or its error. Tests start it by the
// launcher of another MPI than the one that it was built for.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "collectives/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    std::printf("%d ranks\n", collectives::MpiBootstrap(MPI_COMM_WORLD).size());
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
