// The main function of test programs under mpirun. All ranks run the same tests in the same order. All ranks print
// failures, and rank 0 prints the rest of the output.
#include <gtest/gtest.h>
#include <mpi.h>

#include "support/watchdog.hpp"

int main(int argc, char** argv) {
  using collectives::testing::Watchdog;
  int threads = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) GTEST_FLAG_SET(brief, true);
  ::testing::InitGoogleTest(&argc, argv);
  // The list of listeners owns the watchdog, and keeps it until the process ends.
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(Watchdog::limit_from_environment()));
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
