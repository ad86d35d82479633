// One rank of a program in which a rank dies before or after calls, and other ranks come late. early_death_test starts
// it. Survivors print their error in one line on stdout, with the time since they began.
//
//   early_death_program start VICTIM N    VICTIM ends in its N-th call of getifaddrs() during the first construction
//   early_death_program split VICTIM N    the same, during split()
//   early_death_program files VICTIM N    the same as start, but the ranks exchange bytes by files in the folder
//   FOLDER,
//                                         an environment variable. This bootstrap notices no death.
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
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
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

/// Bootstrap of a program: each contribution is a file in a folder that all ranks share.
class FilesBootstrap final : public Bootstrap {
 public:
  FilesBootstrap(const char* folder, Rank rank, int size) : folder_(folder), rank_(rank), size_(size) {}
  std::string_view name() const noexcept override { return "files"; }
  Rank rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    const std::string file = name_of(rank_);
    std::ofstream(file + ".part", std::ios::binary) << mine;
    std::filesystem::rename(file + ".part", file);
    std::vector<std::string> all;
    for (Rank rank = 0; rank < size_; ++rank) {
      while (!std::filesystem::exists(name_of(rank))) {
        if (deadline.passed()) throw Error(Errc::timeout, "a file is missing", rank_, rank);
        std::this_thread::sleep_for(1ms);
      }
      std::ifstream from(name_of(rank), std::ios::binary);
      all.emplace_back(std::istreambuf_iterator<char>(from), std::istreambuf_iterator<char>());
    }
    ++exchanges_;
    return all;
  }

 private:
  std::string name_of(Rank rank) const {
    return folder_ + "/" + std::to_string(exchanges_) + "." + std::to_string(rank);
  }
  std::string folder_;
  Rank rank_;
  int size_, exchanges_ = 0;
};

std::unique_ptr<Bootstrap> make_bootstrap(const std::string& what) {
  if (what != "files") return bootstrap_from_environment();
  return std::make_unique<FilesBootstrap>(std::getenv("FOLDER"), std::atoi(std::getenv("RANK")),
                                          std::atoi(std::getenv("WORLD_SIZE")));
}

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
    const auto bootstrap = make_bootstrap(what);
    rank = bootstrap->rank();
    const bool dies = rank == victim;
    if (dies && (what == "start" || what == "files")) interfaces_to_death = count;
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
