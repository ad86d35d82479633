// One rank of a program that fails under mpirun. mpi_processes_test starts it. It prints the error that it gets in one
// line.
//
//   mpi_program mismatch    rank 1 passes another count than the others
//   mpi_program missing     rank 1 does not make a call whose deadline is one second
//   mpi_program abort       rank 1 aborts; ranks 0 and 1 make no call after it until the others have reported
//   mpi_program die         rank 1 is killed in the middle of a loop
//   mpi_program tuning      says where the tuning comes from
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/mpi.hpp"

int main(int argc, char** argv) {
  using namespace collectives;
  int threads = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
  const std::string what = argc > 1 ? argv[1] : "";
  int status = 0;
  {
    Communicator comm(MpiBootstrap(MPI_COMM_WORLD), {.timeout = std::chrono::seconds(30)});
    const bool odd = comm.rank() == 1;
    if (what == "tuning")
      std::printf("rank %d: inline %zu, tuning %s\n", comm.rank(), comm.tuning().inline_bytes,
                  comm.tuning().source.c_str());
    try {
      for (int lap = 0; lap < (what == "tuning" ? 10 : 1'000'000); ++lap) {
        std::vector<float> data(what == "mismatch" && lap == 20 && odd ? 999 : 1000, 1.f);
        if (lap == 20 && odd && what == "die") ::kill(::getpid(), SIGKILL);
        if (lap == 20 && odd && what == "missing") std::this_thread::sleep_for(std::chrono::seconds(2));
        if (lap == 20 && what == "abort") {
          if (odd) comm.abort("no data");
          if (comm.rank() <= 1) break;
        }
        const Options options{.backend = lap % 2 == 0 ? "ring" : "hierarchical",
                              .timeout = std::chrono::seconds(what == "missing" ? 1 : 30)};
        comm.all_reduce(data, ReduceOp::sum, options);
      }
    } catch (const Error& error) {
      std::printf("rank %d: %s: %s\n", comm.rank(), std::string(to_string(error.code())).c_str(), error.what());
      std::fflush(stdout);
      status = 3;
    }
    MPI_Barrier(MPI_COMM_WORLD);  // no rank leaves MPI before all ranks have printed their errors
  }
  MPI_Finalize();
  return status;
}
