// Runs jobs of random collectives, whose results are checked element by element (stress_program), over all wires. Two
// busy programs may run beside a job, which then has fewer cores than ranks. A sleeper shows that other processes get
// to run all the time.
//
//   random_operations [--seed S] [--first T] [--trials N] [--operations N] [--late SECONDS]
//
// Each trial follows from the seed and its number, so that a run can be resumed. Exits with 1 if a trial fails, or if
// the sleeper was late by more than --late seconds.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/programs.hpp"
#include "support/sleeper.hpp"

// Paths, defined in a file that CMake writes.
extern const char kCollectivesRun[], kStressProgram[];

namespace collectives::testing {
namespace {

/// Programs that compute without end.
class BusyPrograms {
 public:
  explicit BusyPrograms(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
      }
      pids_.push_back(pid);
    }
  }
  ~BusyPrograms() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  BusyPrograms(const BusyPrograms&) = delete;
  BusyPrograms& operator=(const BusyPrograms&) = delete;

 private:
  std::vector<pid_t> pids_;
};

struct Trial {
  std::string wire, environment;
  std::vector<int> hosts;
  int busy = 0;  // programs that run beside the ranks
  std::uint64_t seed = 0;
};

Trial draw(std::uint64_t seed, std::uint64_t index) {
  std::mt19937_64 random(seed * 7'919 + index * 104'729);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
#ifdef COLLECTIVES_TEST_UCX
  constexpr const char* kWires[] = {"shared_memory", "tcp", "tcp_without_datagrams", "mixed", "ucx"};
#else
  constexpr const char* kWires[] = {"shared_memory", "tcp", "tcp_without_datagrams", "mixed"};
#endif
  Trial trial;
  trial.wire = kWires[index % std::size(kWires)];
  trial.seed = random() % 1'000'000;
  for (int rank = 0, ranks = 2 + below(5); rank < ranks; ++rank)
    trial.hosts.push_back(trial.wire == "shared_memory" ? 0 : trial.wire == "mixed" ? below(2) : rank);
  if (trial.wire == "tcp_without_datagrams") trial.environment += "COLLECTIVES_DATAGRAMS=off ";
  if (trial.wire != "shared_memory")
    trial.environment += trial.wire == "ucx" ? "COLLECTIVES_WIRE=ucx " : "COLLECTIVES_WIRE=tcp ";
  if (below(2) == 0) trial.environment += "COLLECTIVES_CORES=1 ";
  if (below(3) == 0) trial.environment += "COLLECTIVES_PROGRESS_THREAD=on ";
  trial.busy = below(3) == 0 ? 2 : 0;
  return trial;
}

/// Runs a trial. Returns its output if it has failed.
std::string run(const Trial& trial, std::uint64_t operations) {
  const BusyPrograms busy(trial.busy);
  const Outcome outcome = run_command(
      fmt::format("{} timeout 600 {} -n {} --grace 5s {} protocol=mixed wait=mixed operations={} seed={} hosts={}",
                  trial.environment, kCollectivesRun, trial.hosts.size(), kStressProgram, operations, trial.seed,
                  fmt::join(trial.hosts, ",")));
  const bool good =
      outcome.status == 0 && occurrences(outcome.out, "rank [0-9]: ok") == static_cast<int>(trial.hosts.size());
  return good ? "" : fmt::format("status {}: {}", outcome.status, outcome.out);
}

}  // namespace
}  // namespace collectives::testing

int main(int argc, char** argv) {
  using namespace collectives::testing;
  std::map<std::string, double> options{
      {"--seed", 1}, {"--first", 0}, {"--trials", 20}, {"--operations", 1000}, {"--late", 0.5}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) return std::fprintf(stderr, "unknown option: %s\n", argv[i]), 2;
    options[argv[i]] = std::strtod(argv[i + 1], nullptr);
  }
  const Sleeper sleeper(std::chrono::milliseconds(50));
  const auto number = [&](const char* name) { return static_cast<std::uint64_t>(options[name]); };
  const std::uint64_t operations = number("--operations"), end = number("--first") + number("--trials");
  int failed = 0;
  for (std::uint64_t index = number("--first"); index < end; ++index) {
    const Trial trial = draw(number("--seed"), index);
    const std::int64_t began = Sleeper::now();
    const std::string fault = run(trial, operations);
    failed += fault.empty() ? 0 : 1;
    fmt::print(
        "trial {} of seed {}: {} hosts {} {}{} busy: {} operations in {:.1f} s, sleeper late by {:.3f} s at most{}\n",
        index, number("--seed"), trial.wire, fmt::join(trial.hosts, ","), trial.environment, trial.busy, operations,
        static_cast<double>(Sleeper::now() - began) * 1e-9, sleeper.greatest_lateness(),
        fault.empty() ? "" : "; FAILED\n" + fault);
    std::fflush(stdout);
  }
  const bool late = sleeper.greatest_lateness() > options["--late"];
  fmt::print("{} trials of {} operations, {} failed; a sleeper was late by {:.3f} s at most\n", number("--trials"),
             operations, failed, sleeper.greatest_lateness());
  return failed == 0 && !late ? 0 : 1;
}
