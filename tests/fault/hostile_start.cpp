// Starts jobs of two or three ranks while an attacker sends hostile bytes to all their ports. The ranks make
// communicators all the time, so their listening sockets are open often. In three of four jobs they join one after
// another, after a part of the inputs. The results must be right, and the memory of a
// rank may grow by 64 MiB at most.
//
//   hostile_start [--seed S] [--inputs N] [--per-job N]
//
// Exits with 1 if a job has a fault.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/collectives.hpp"
#include "fault/attacker.hpp"
#include "support/rank_processes.hpp"
#include "support/sleeper.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

constexpr int kMostRanks = 3;
constexpr std::size_t kMoreMemory = (kSanitized ? 512ULL : 64ULL) << 20;  // bytes
constexpr std::int64_t kLongest = 60'000'000'000;                         // time of a job, in nanoseconds

/// Memory that the driver shares with the ranks of a job.
struct Shared {
  std::atomic<int> over = 0;              ///< whether the attack has ended
  std::atomic<std::uint64_t> inputs = 0;  ///< inputs that the attacker has sent
  std::uint64_t inputs_before = 0;        ///< inputs before the last rank joins; other ranks join earlier
  struct Of {
    std::atomic<std::size_t> memory = 0;  ///< greatest resident memory in bytes
    std::atomic<std::size_t> rounds = 0;
    char text[400] = {};
  } of[kMostRanks];
};

/// Delays each exchange of a rank, so that the sockets of the other ranks are open for longer.
class SlowBootstrap final : public Bootstrap {
 public:
  SlowBootstrap(Bootstrap& inner, std::uint64_t seed) : inner_(inner), random_(seed) {}
  std::string_view name() const noexcept override { return inner_.name(); }
  Rank rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 15'000));
    return inner_.all_gather(mine, deadline);
  }

 private:
  Bootstrap& inner_;
  std::mt19937_64 random_;
};

void check_sum(Communicator& comm, std::size_t count) {
  std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data);
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  if (std::ranges::any_of(data, [&](float x) { return x != sum; })) throw std::runtime_error("a wrong sum");
}

/// Runs one rank until the attack has ended. Throws if anything fails.
void run_rank(Rank rank, std::uint64_t seed, Shared& shared) {
  const std::uint64_t before = shared.inputs_before * static_cast<std::uint64_t>(rank) / (kMostRanks - 1);
  while (shared.inputs < before && shared.over == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto bootstrap = bootstrap_from_environment(std::chrono::seconds(30));
  SlowBootstrap slow(*bootstrap, seed + static_cast<std::uint64_t>(rank));
  Communicator comm(slow);
  for (int over = 0; over == 0; ++shared.of[rank].rounds) {
    check_sum(comm, 100);
    check_sum(comm, 20'000);
    std::optional<Communicator> part = comm.split(0);
    check_sum(*part, 1000);
    over = shared.over;
    comm.all_reduce(std::span(&over, 1), ReduceOp::max);
  }
  shared.of[rank].memory = status_bytes("VmHWM");
}

class Job {
 public:
  Job(std::uint64_t seed, int ranks, Shared& shared) : ranks_(ranks), shared_(shared) {
    const pid_t driver = ::getpid();
    for (Rank rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != driver) ::_exit(1);
        ::_exit(be_rank(rank, seed));
      }
      processes_.push_back(pid);
    }
  }
  ~Job() {
    for (const pid_t process : processes_) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::vector<pid_t>& processes() const { return processes_; }
  /// Waits for the end of the ranks. Returns what is wrong; empty: nothing.
  std::string finish() {
    std::string faults;
    const std::int64_t until = Sleeper::now() + kLongest;
    while (!processes_.empty() && Sleeper::now() < until) {
      int status = 0;
      const pid_t process = ::waitpid(processes_.front(), &status, WNOHANG);
      if (process == 0) {
        ::usleep(1000);
        continue;
      }
      if (status != 0) faults += fmt::format(" a rank ended with status {:x};", status);
      processes_.erase(processes_.begin());
    }
    for (Rank rank = 0; rank < ranks_; ++rank)
      if (shared_.of[rank].text[0] != 0) faults += fmt::format(" rank {}: {};", rank, shared_.of[rank].text);
    if (!processes_.empty()) faults += " ranks do not end;";
    return faults;
  }

 private:
  int be_rank(Rank rank, std::uint64_t seed) {
    try {
      rendezvous_.set_environment(rank, ranks_, fmt::format("job {}", seed));
      ::setenv("COLLECTIVES_HOST_ID", std::to_string(ranks_ == 2 ? rank : rank / 2).c_str(), 1);
      ::setenv("COLLECTIVES_TUNING", "default", 1);
      ::setenv("COLLECTIVES_WIRE", "tcp", 1);
      ::setenv("COLLECTIVES_TIMEOUT", "30", 1);
      ::setenv("COLLECTIVES_LOG", "off", 1);
      run_rank(rank, seed, shared_);
      return 0;
    } catch (const std::exception& error) {
      std::snprintf(shared_.of[rank].text, sizeof shared_.of[rank].text, "%s", error.what());
      return 1;
    }
  }

  const int ranks_;
  Shared& shared_;
  const RendezvousPort rendezvous_;
  std::vector<pid_t> processes_;
};

struct Totals {
  std::uint64_t jobs = 0, inputs = 0, faults = 0, rounds = 0;
  std::size_t memory = 0, quiet_memory = 0;
};

/// Runs a job and sends up to `inputs` inputs to its ports. Without inputs it measures the memory of a job.
void run_job(std::uint64_t seed, std::uint64_t inputs, Attacker& attacker, Totals& totals) {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  Shared& shared = *new (memory) Shared;
  shared.inputs_before = inputs * (seed % 4) / 4;
  const int ranks = inputs == 0 ? kMostRanks : 2 + static_cast<int>(seed % 2);
  Job job(seed, ranks, shared);
  std::uint64_t sent = 0;
  const std::int64_t until = Sleeper::now() + (inputs == 0 ? 500'000'000 : kLongest / 4);
  while ((inputs == 0 || sent < inputs) && Sleeper::now() < until) {
    const OpenPorts ports = ports_of(job.processes());
    for (int i = 0; i < 8 && sent < inputs; ++i) sent += attacker.attack(ports) ? 1U : 0U;
    shared.inputs = sent;
    if (ports.connections.empty()) ::usleep(500);
  }
  shared.over = 1;
  std::string faults = job.finish();
  attacker.end();
  for (Rank rank = 0; rank < ranks; ++rank) {
    std::size_t& greatest = inputs == 0 ? totals.quiet_memory : totals.memory;
    greatest = std::max(greatest, shared.of[rank].memory.load());
    totals.rounds += shared.of[rank].rounds;
  }
  if (inputs != 0 && totals.memory > totals.quiet_memory + kMoreMemory)
    faults +=
        fmt::format(" a rank took {} MiB, without an attack {} MiB;", totals.memory >> 20, totals.quiet_memory >> 20);
  if (!faults.empty()) fmt::print("job {} with {} ranks after {} inputs:{}\n", seed, ranks, sent, faults);
  std::fflush(stdout);
  ++totals.jobs;
  totals.inputs += sent;
  totals.faults += faults.empty() ? 0U : 1U;
  ::munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace collectives::testing

int main(int argc, char** argv) {
  using namespace collectives::testing;
  std::uint64_t seed = 1, inputs = 1000, per_job = 100;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    (name == "--seed" ? seed : name == "--inputs" ? inputs : per_job) = value;
  }
  Attacker attacker(seed, record_greetings());
  Totals totals;
  for (int quiet = 0; quiet < 2; ++quiet) run_job(seed * 1'000'000 + totals.jobs, 0, attacker, totals);
  while (totals.inputs < inputs && totals.faults < 10)
    run_job(seed * 1'000'000 + totals.jobs, std::min(per_job, inputs - totals.inputs), attacker, totals);
  for (const auto& [kind, count] : attacker.sent()) fmt::print("{:22} {}\n", kind, count);
  fmt::print("{} jobs, {} inputs, {} rounds, {} with faults; memory {} MiB at most, without an attack {} MiB\n",
             totals.jobs, totals.inputs, totals.rounds, totals.faults, totals.memory >> 20, totals.quiet_memory >> 20);
  return totals.faults == 0 ? 0 : 1;
}
