// An MPI program whose processes end early, are stopped, or have child processes. Tests run it with and without the
// drop-in, a preloaded library that takes over MPI's collectives:
//
//   processes abort | killed | leaves | quits   [allreduce | iallreduce | barrier]
//       the last rank ends, by MPI_Abort, a signal, exit or _exit, while the others wait for it in such a call
//   processes stopped | forks
//       the last rank is stopped repeatedly, or ranks fork children; the program continues and succeeds
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

int rank = 0, size = 1;

/// Makes an all-reduce of `count` ints and returns the number of wrong results.
int wrong_sums(int count) {
  std::vector<int> values(static_cast<std::size_t>(count), rank), sums(values.size());
  MPI_Allreduce(values.data(), sums.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return static_cast<int>(std::ranges::count_if(sums, [](int sum) { return sum != size * (size - 1) / 2; }));
}

/// Waits in a collective for the last rank, which never enters it.
void wait_in(std::string_view call) {
  std::vector<double> values(100000, 1.0), sums(values.size());
  const int count = static_cast<int>(values.size());
  if (call == "barrier") {
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (call == "allreduce") {
    MPI_Allreduce(values.data(), sums.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(values.data(), sums.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  std::printf("rank %d came through\n", rank);
}

void end_by(std::string_view how) {
  std::this_thread::sleep_for(200ms);  // the other ranks wait by then
  if (how == "abort") MPI_Abort(MPI_COMM_WORLD, 3);
  if (how == "killed") ::raise(SIGKILL);
  if (how == "leaves") std::exit(0);
  if (how == "quits") ::_exit(0);
}

/// Makes calls while the last rank is stopped again and again, at arbitrary instructions, for some seconds. A child of
/// rank 0 stops it. The calls end with that child.
int stopped() {
  std::vector<long> pids(static_cast<std::size_t>(size));
  const long mine = ::getpid();
  MPI_Allgather(&mine, 1, MPI_LONG, pids.data(), 1, MPI_LONG, MPI_COMM_WORLD);
  const pid_t victim = static_cast<pid_t>(pids.back());
  pid_t child = -1;
  if (rank == 0) child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 10; ++i) {
      ::kill(victim, SIGSTOP);
      ::usleep(i == 5 ? 2000000 : 100000);
      ::kill(victim, SIGCONT);
      ::usleep(30000 + 1000 * static_cast<useconds_t>(i));
    }
    ::_exit(0);
  }
  int wrong = 0;
  for (int more = 1; more != 0;) {
    for (const int count : {1, 100, 10000, 300000}) wrong += wrong_sums(count);
    MPI_Barrier(MPI_COMM_WORLD);
    int status = 0;
    const int has_child = rank == 0 && ::waitpid(child, &status, WNOHANG) == 0 ? 1 : 0;
    MPI_Allreduce(&has_child, &more, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  return wrong;
}

int forks() {
  int wrong = wrong_sums(10);
  for (int i = 0; i < 5; ++i) {
    if (rank == i % size) {
      wrong += std::system("true") == 0 ? 0 : 1;
      for (const bool waited_for : {true, false}) {
        const pid_t child = ::fork();
        if (child == 0 && waited_for) std::exit(7);  // runs all destructors, also those of the drop-in
        if (child == 0) {
          ::usleep(50000);
          ::_exit(7);
        }
        int status = 0;
        if (waited_for) wrong += ::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 ? 0 : 1;
      }
    }
    for (const int count : {1, 1000, 100000}) wrong += wrong_sums(count);
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "", call = argc > 2 ? argv[2] : "allreduce";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int wrong = 0;
  for (int i = 0; i < 3; ++i) wrong += wrong_sums(10);
  if (what == "stopped") {
    wrong += stopped();
  } else if (what == "forks") {
    wrong += forks();
  } else {
    rank == size - 1 ? end_by(what) : wait_in(call);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
