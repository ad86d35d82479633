// Benchmark of MPI's collectives, with and without the drop-in. The drop-in is a shared library that performs the
// collectives of an MPI program by this project's library. The variable LD_PRELOAD loads it. The benchmark itself uses
// only MPI.
//
// Prints one line for each collective and length: name, bytes of the whole vector, and microseconds of a call. A round
// times a loop of calls, and takes the time of the slowest rank. The result is the median over the rounds. The line
// "forwarded" shows the time of a call that the drop-in always leaves to MPI, in nanoseconds.
//
//   mpirun -np 2 drop_in_bench_openmpi [rounds]
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Returns the median over the rounds: seconds per call on the slowest rank.
double time_of(int rounds, int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    const double mine = (MPI_Wtime() - start) / calls;
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (round > 0) times.push_back(slowest);
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto say = [rank](const char* what, std::size_t bytes, double time) {
    if (rank == 0) std::printf("%-20s %10zu %12.2f\n", what, bytes, time);
  };
  short one = 1, sum = 0;
  say("forwarded", 2,
      1e9 * time_of(rounds, 100000, [&] { MPI_Allreduce(&one, &sum, 1, MPI_SHORT, MPI_SUM, MPI_COMM_SELF); }));
  say("Barrier", 0, 1e6 * time_of(rounds, 1000, [] { MPI_Barrier(MPI_COMM_WORLD); }));
  for (std::size_t bytes = 8; bytes <= (16U << 20U); bytes *= 4) {
    const std::size_t elements = bytes / sizeof(double),
                      part = std::max<std::size_t>(1, elements / static_cast<std::size_t>(size));
    std::vector<double> in(part * static_cast<std::size_t>(size) + elements, 1.0), out(in.size());
    const int n = static_cast<int>(elements), m = static_cast<int>(part);
    const int calls = static_cast<int>(std::clamp<std::size_t>((1U << 22U) / bytes, 1, 500));
    const auto run = [&](const char* name, const std::function<void()>& call) {
      say(name, bytes, 1e6 * time_of(rounds, calls, call));
    };
    run("Allreduce", [&] { MPI_Allreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    run("Reduce", [&] { MPI_Reduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); });
    run("Reduce_scatter_block",
        [&] { MPI_Reduce_scatter_block(in.data(), out.data(), m, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    run("Allgather", [&] { MPI_Allgather(in.data(), m, MPI_DOUBLE, out.data(), m, MPI_DOUBLE, MPI_COMM_WORLD); });
    run("Bcast", [&] { MPI_Bcast(in.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD); });
    run("Alltoall", [&] { MPI_Alltoall(in.data(), m, MPI_DOUBLE, out.data(), m, MPI_DOUBLE, MPI_COMM_WORLD); });
    run("Gather", [&] { MPI_Gather(in.data(), m, MPI_DOUBLE, out.data(), m, MPI_DOUBLE, 0, MPI_COMM_WORLD); });
    run("Scatter", [&] { MPI_Scatter(in.data(), m, MPI_DOUBLE, out.data(), m, MPI_DOUBLE, 0, MPI_COMM_WORLD); });
    const std::vector<int> counts(static_cast<std::size_t>(size), m);
    std::vector<int> places(counts.size());
    for (std::size_t r = 0; r < places.size(); ++r) places[r] = static_cast<int>(r) * m;
    run("Alltoallv", [&] {
      MPI_Alltoallv(in.data(), counts.data(), places.data(), MPI_DOUBLE, out.data(), counts.data(), places.data(),
                    MPI_DOUBLE, MPI_COMM_WORLD);
    });
    run("Gatherv", [&] {
      MPI_Gatherv(in.data(), m, MPI_DOUBLE, out.data(), counts.data(), places.data(), MPI_DOUBLE, 0, MPI_COMM_WORLD);
    });
    run("Scatterv", [&] {
      MPI_Scatterv(in.data(), counts.data(), places.data(), MPI_DOUBLE, out.data(), m, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    });
    run("Scan", [&] { MPI_Scan(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    run("Exscan", [&] { MPI_Exscan(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    run("Iallreduce", [&] {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
  }
  MPI_Finalize();
  return 0;
}
