// One rank of a program on several hosts, which hosts_test starts. It all-reduces vectors of several lengths in a loop
// and checks every element. It appends its results to a file, one line each, because standard output cannot leave a
// host whose link is cut.
//
//   host_program KEY=VALUE...
//     report=FILE           file of the lines of all ranks
//     timeout_ms=N          deadline of the constructor and of every call
//     milliseconds=N        duration of the loop; rank 0 ends it on all ranks
//
//   rank 2: here            the rank has a communicator and has made nine rounds of calls
//   rank 2: ok              the rank has reached the end of the loop
//   rank 2: timeout of rank 1 within twice the deadline: all_reduce #17: ...
//                           code of the error, rank that it names (-1: none), duration of the call
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collectives.hpp"
#ifdef HOST_PROGRAM_WITH_MPI
#include "collectives/mpi.hpp"
#endif

namespace {

using namespace collectives;
using Clock = std::chrono::steady_clock;

std::string report;
std::chrono::milliseconds timeout{0}, duration{0};

void tell(const std::string& line) {
  const int file = ::open(report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, line.data(), line.size()) < 0) std::abort();
  ::close(file);
}

#ifdef HOST_PROGRAM_WITH_MPI
bool under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr; }
#endif

std::unique_ptr<Bootstrap> make_bootstrap() {
#ifdef HOST_PROGRAM_WITH_MPI
  if (under_mpirun()) return std::make_unique<MpiBootstrap>(MPI_COMM_WORLD, timeout);
#endif
  return bootstrap_from_environment(timeout);
}

/// Returns element `i` of the contribution of a rank to a lap of the loop. Sums are exact in any order.
float contribution(int rank, int lap, std::size_t i) {
  return static_cast<float>((rank + 1) * static_cast<int>(1 + (i + static_cast<std::size_t>(lap)) % 5));
}

/// Makes one all-reduce. Returns true if all sums are right.
bool lap(Communicator& comm, int number) {
  constexpr std::size_t kCounts[] = {1, 1000, 30'000, 300'001};
  std::vector<float> data(kCounts[static_cast<std::size_t>(number) % std::size(kCounts)]);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = contribution(comm.rank(), number, i);
  comm.all_reduce(data, ReduceOp::sum, {.backend = number % 3 == 0 ? "ring" : "auto"});
  const int all = comm.size() * (comm.size() + 1) / 2;
  for (std::size_t i = 0; i < data.size(); ++i)
    if (data[i] != static_cast<float>(all) * contribution(0, number, i)) return false;
  return true;
}

int run() {
  Rank rank = kNoRank;
  auto last = Clock::now();
  try {
    const std::unique_ptr<Bootstrap> bootstrap = make_bootstrap();
    rank = bootstrap->rank();
    Communicator comm(*bootstrap, {.timeout = timeout});
    const Clock::time_point start = Clock::now();
    for (int number = 0;; ++number) {
      last = Clock::now();
      if (!lap(comm, number)) {
        tell(fmt::format("rank {}: wrong\n", rank));
        return 1;
      }
      if (number == 8) tell(fmt::format("rank {}: here\n", rank));
      std::vector<std::int32_t> enough{number > 8 && Clock::now() - start > duration ? 1 : 0};
      last = Clock::now();
      comm.broadcast(enough, 0);
      if (enough.front() == 1) break;
    }
    tell(fmt::format("rank {}: ok\n", rank));
    return 0;
  } catch (const Error& error) {
    const bool late = Clock::now() - last > 2 * timeout;
    tell(fmt::format("rank {}: {} of rank {} {} twice the deadline: {}\n", rank != kNoRank ? rank : error.rank(),
                     to_string(error.code()), error.peer(), late ? "after more than" : "within", error.what()));
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto equals = word.find('=');
    const std::string key(word.substr(0, equals)), value(word.substr(equals + 1));
    if (key == "report") report = value;
    if (key == "timeout_ms") timeout = std::chrono::milliseconds(std::atoi(value.c_str()));
    if (key == "milliseconds") duration = std::chrono::milliseconds(std::atoi(value.c_str()));
  }
#ifdef HOST_PROGRAM_WITH_MPI
  int threads = MPI_THREAD_SINGLE;
  if (under_mpirun()) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
  const int status = run();
  // After an error a peer may have ended, and MPI_Finalize would wait for it. Ends without MPI_Finalize; the exit
  // status reports the failure to mpirun.
  if (status != 0) std::_Exit(status);
  if (under_mpirun()) MPI_Finalize();
  return status;
#else
  return run();
#endif
}
