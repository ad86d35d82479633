// One rank of a program in which a rank dies before or after calls, and other ranks come late. early_death_test starts
// it. Survivors print their error in one line on stdout, with the time since they began.
//
//   early_death_program start VICTIM N    VICTIM ends in its N-th call of getifaddrs() during the first construction
//   early_death_program split VICTIM N    the same, during split()
//   early_death_program send VICTIM N     VICTIM ends in its N-th send() after its third call of getifaddrs(), which
//                                         begins the connect phase; the measurement of the wire follows
//   early_death_program alarm VICTIM US   VICTIM ends US microseconds after it has joined; all call barriers
//   early_death_program news              rank 3 of 4 ends; rank 0 informs rank 1, and rank 2 only after rank 2 has
//                                         ended or 2 s have passed; rank 1 leaves; then rank 2 makes a call
//
// The program replaces getifaddrs() and send() of the C library. The library thereby ends at places that a test cannot
// reach otherwise.
#include <dlfcn.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/collectives.hpp"

namespace {

using namespace collectives;
using namespace std::chrono_literals;

std::atomic<long> interfaces_asked{0}, interfaces_to_death{0}, sends_to_death{0};
std::atomic<int> uninformed{0};  // Process to which rank 0 sends the news late.
std::atomic<int> news_sent{0};

void die() { ::kill(::getpid(), SIGKILL); }

bool is_running(int process) { return ::kill(process, 0) == 0; }

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int getifaddrs(ifaddrs** all) noexcept {
  static const auto original = next<int (*)(ifaddrs**)>("getifaddrs");
  ++interfaces_asked;
  if (interfaces_to_death > 0 && --interfaces_to_death == 0) die();
  return original(all);
}

extern "C" __attribute__((visibility("default"))) ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  static const auto original = next<ssize_t (*)(int, const void*, std::size_t, int)>("send");
  if (sends_to_death > 0 && interfaces_asked >= 3 && --sends_to_death == 0) die();
  // A control message begins with its length in four bytes. "A 5" begins the news that a rank was lost.
  const std::string_view text(static_cast<const char*>(data), bytes);
  if (uninformed != 0 && text.size() > 7 && text.substr(4, 3) == "A 5" && news_sent++ == 1)
    for (int time = 0; time < 2000 && is_running(uninformed); ++time) std::this_thread::sleep_for(1ms);
  return original(fd, data, bytes, flags);
}

namespace {

void report(Rank rank, const Error& error, std::chrono::steady_clock::time_point begun) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf("rank %d: %s after %s 5 s: %s\n", rank, std::string(to_string(error.code())).c_str(),
              seconds < 5 ? "at most" : "more than", error.what());
  std::fflush(stdout);
}

/// Returns 3 after the expected error.
int news(Communicator& comm) {
  std::vector<int> processes(static_cast<std::size_t>(comm.size()));
  const int mine[] = {::getpid()};
  comm.all_gather(mine, processes);
  comm.barrier();
  const auto wait_for_end_of = [&](std::size_t rank) {
    while (is_running(processes[rank])) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
  };
  if (comm.rank() == 3) die();
  wait_for_end_of(3);
  if (comm.rank() == 0) uninformed = processes[2];
  if (comm.rank() == 1) std::this_thread::sleep_for(300ms);  // Rank 0 tells it first.
  if (comm.rank() == 2) wait_for_end_of(1);
  const auto begun = std::chrono::steady_clock::now();
  try {
    comm.barrier();
  } catch (const Error& error) {
    report(comm.rank(), error, begun);
    return 3;
  }
  return 0;
}

int run(const std::string& what, Rank victim, long count) {
  const auto begun = std::chrono::steady_clock::now();
  Rank rank = kNoRank;
  try {
    const auto bootstrap = bootstrap_from_environment();
    rank = bootstrap->rank();
    const bool dies = rank == victim;
    if (dies && what == "start") interfaces_to_death = count;
    if (dies && what == "send") sends_to_death = count;
    if (dies && what == "alarm") ::ualarm(static_cast<useconds_t>(count), 0);
    Communicator comm(*bootstrap);
    while (what == "alarm") comm.barrier();
    if (what == "news") return news(comm);
    if (what != "split") return 0;
    comm.barrier();
    if (dies) interfaces_to_death = count;
    const auto part = comm.split(0, rank);
    return 0;
  } catch (const Error& error) {
    report(rank, error, begun);
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : kNoRank, argc > 3 ? std::atol(argv[3]) : 0);
}
