// Implementation of the trials: draws them, starts the ranks, kills the victims, and judges the survivors.
//
// The driver is the subreaper of all processes of a trial, so it would inherit any that a rank left behind. A rank that
// does not end is killed. The driver inherits no process of other tests.
#include "fault/kill_trial.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "collectives/error.hpp"
#include "support/rank_processes.hpp"

namespace collectives::testing {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds
constexpr int kCallSeconds = 20;                 // timeout of calls
constexpr int kHangSeconds = 40;                 // time after which the driver ends the ranks of a trial
constexpr double kEndSeconds = 12;               // longest time from the error of a survivor to its end

std::set<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) names.insert(entry.path().string());
  return names;
}

/// Returns the files in shared folders that may be those of a trial. Their names contain a word of the library, or of
/// UCX. Tests across hosts, which may run at the same time, have folders of their own in /tmp.
std::set<std::string> shared_files() {
  std::set<std::string> found;
  for (const char* folder : {"/dev/shm", "/tmp"})
    for (const std::string& name : files_in(folder))
      if (name.find("collectives-hosts.") == name.npos &&
          (name.find("collectives") != name.npos || name.find("ucx_shm") != name.npos))
        found.insert(name);
  return found;
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

void set_environment(const KillTrial& trial, Rank rank, const RendezvousPort& rendezvous,
                     const std::filesystem::path& folder) {
  rendezvous.set_environment(rank, trial.ranks(), fmt::format("trial {} of {}", trial.index, trial.seed));
  set("TMPDIR", (folder / "tmp").string());
  set("XDG_CACHE_HOME", (folder / "cache").string());
  set("COLLECTIVES_TIMEOUT", std::to_string(kCallSeconds));
  set("COLLECTIVES_HOST_ID", std::to_string(trial.hosts[static_cast<std::size_t>(rank)]));
  if (trial.measures)
    ::unsetenv("COLLECTIVES_TUNING");
  else
    set("COLLECTIVES_TUNING", "default");
  if (trial.wire == KillWire::ucx) set("COLLECTIVES_WIRE", "ucx");
  if (trial.wire != KillWire::ucx && trial.wire != KillWire::shared_memory) set("COLLECTIVES_WIRE", "tcp");
  if (trial.wire == KillWire::tcp_without_datagrams) set("COLLECTIVES_DATAGRAMS", "off");
}

/// The processes of a trial, from their start to their end.
class Ranks {
 public:
  explicit Ranks(const KillTrial& trial) : trial_(trial), ended_(trial.hosts.size(), 0) {
    const std::size_t bytes = sizeof(RankState) * trial.hosts.size();
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    states_ = static_cast<RankState*>(memory);
    for (std::size_t r = 0; r < trial.hosts.size(); ++r) new (&states_[r]) RankState;
    output_ = ::memfd_create("output", MFD_CLOEXEC);
    status_.resize(trial.hosts.size());
    std::filesystem::create_directory(folder_.path() / "tmp");
    start();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (Rank rank = 0; rank < trial_.ranks(); ++rank) kill(rank);
    while (!all_ended()) reap();
    ::munmap(states_, sizeof(RankState) * trial_.hosts.size());
    ::close(output_);
  }

  RankState& state(Rank rank) const { return states_[rank]; }
  /// Returns the time at which the driver noticed the end of a rank; 0: it has not ended.
  std::int64_t ended(Rank rank) const { return ended_[static_cast<std::size_t>(rank)]; }
  int status(Rank rank) const { return status_[static_cast<std::size_t>(rank)]; }
  bool all_ended() const { return std::ranges::count(ended_, 0) == 0; }
  bool all_constructed() const {
    for (Rank rank = 0; rank < trial_.ranks(); ++rank)
      if (state(rank).stage != RankState::constructed) return false;
    return true;
  }
  void kill(Rank rank) const {
    if (ended(rank) == 0) ::kill(pids_[static_cast<std::size_t>(rank)], SIGKILL);
  }
  /// Notices ranks that have ended. Returns the number of processes that are no ranks but ended here.
  int reap() {
    int others = 0, status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = std::ranges::find(pids_, pid);
      if (found == pids_.end()) {
        ++others;
        continue;
      }
      const auto r = static_cast<std::size_t>(found - pids_.begin());
      ended_[r] = Sleeper::now();
      status_[r] = status;
    }
    ::usleep(300);
    return others;
  }
  /// Returns whether anything is left of the trial. Requires that all ranks have ended.
  std::vector<std::string> leftovers(const std::set<std::string>& before) const {
    std::vector<std::string> left;
    for (const std::string& name : files_in(folder_.path() / "tmp")) left.push_back(name);
    for (const std::string& name : shared_files())
      if (!before.contains(name)) left.push_back(name);
    return left;
  }
  std::string output() const {
    std::string text(16'000, '\0');
    const ssize_t bytes = ::pread(output_, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return text;
  }

 private:
  void start() {
    const RendezvousPort rendezvous;
    const pid_t driver = ::getpid();
    for (Rank rank = 0; rank < trial_.ranks(); ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) throw std::runtime_error("fork");
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != driver) ::_exit(0);
        ::dup2(output_, STDOUT_FILENO);
        ::dup2(output_, STDERR_FILENO);
        set_environment(trial_, rank, rendezvous, folder_.path());
        run_rank(trial_, rank, state(rank));
      }
      pids_.push_back(pid);
    }
  }

  const KillTrial& trial_;
  TemporaryFolder folder_{"random_kills"};
  RankState* states_ = nullptr;
  int output_ = -1;
  std::vector<pid_t> pids_;
  std::vector<std::int64_t> ended_;
  std::vector<int> status_;
};

/// Returns the time at which a victim died; 0: it lives.
std::int64_t died(const Ranks& ranks, Rank victim, const std::vector<std::int64_t>& killed, std::size_t i) {
  return killed[i] != 0 ? killed[i] : ranks.state(victim).killed.load();
}

/// Kills the victims at their times, and waits until all ranks have ended. Returns the times of the kills.
std::vector<std::int64_t> carry_out(const KillTrial& trial, Ranks& ranks, KillVerdict& verdict) {
  std::vector<std::int64_t> killed(trial.victims.size(), 0);
  const std::int64_t started = Sleeper::now();
  std::int64_t phase = trial.phase == KillPhase::start ? started : 0;
  const auto failed_early = [&] {
    return std::ranges::any_of(trial.victims, [&](Rank rank) { return ranks.ended(rank) != 0; });
  };
  while (!ranks.all_ended() && Sleeper::now() < started + kHangSeconds * kSecond) {
    if (ranks.reap() != 0) verdict.faults.emplace_back("a rank left a process behind");
    if (phase == 0 && ranks.all_constructed()) phase = Sleeper::now();
    for (std::size_t i = 0; i < killed.size(); ++i) {
      if (killed[i] != 0) continue;
      const std::int64_t before = i == 0 ? 0 : died(ranks, trial.victims[i - 1], killed, i - 1);
      bool now = false;
      if (i == 0)
        now = trial.operation < 0 && phase != 0 && Sleeper::now() >= phase + trial.after_us * 1000LL;
      else
        now = before != 0 && Sleeper::now() >= before + trial.between_us * 1000LL;
      if (!now || ranks.ended(trial.victims[i]) != 0) continue;
      killed[i] = Sleeper::now();
      ranks.kill(trial.victims[i]);
    }
    if (failed_early() && died(ranks, trial.victims[0], killed, 0) == 0) break;
  }
  for (std::size_t i = 0; i < killed.size(); ++i) killed[i] = died(ranks, trial.victims[i], killed, i);
  return killed;
}

/// Returns whether an error names one of the victims.
bool names_a_victim(const KillTrial& trial, const RankState& state) {
  const auto is_victim = [&](Rank rank) { return std::ranges::find(trial.victims, rank) != trial.victims.end(); };
  if (state.peer != kNoRank) return is_victim(state.peer);
  return std::ranges::any_of(trial.victims, [&](Rank rank) {
    return std::string_view(state.text).find(fmt::format("rank {} ", rank)) != std::string_view::npos;
  });
}

class Judge {
 public:
  Judge(const KillTrial& trial, const Ranks& ranks, std::vector<std::int64_t> killed, const Sleeper& sleeper,
        KillVerdict& verdict)
      : trial_(trial), ranks_(ranks), killed_(std::move(killed)), sleeper_(sleeper), verdict_(verdict) {}

  void judge() {
    if (killed_[0] == 0) fault("no rank was killed");
    for (Rank rank = 0; rank < trial_.ranks(); ++rank)
      if (std::ranges::find(trial_.victims, rank) == trial_.victims.end()) judge(rank);
  }

 private:
  void fault(std::string text) { verdict_.faults.push_back(std::move(text)); }

  void judge(Rank rank) {
    const RankState& state = ranks_.state(rank);
    const std::string_view text = state.text;
    const auto end = [&](std::string_view what) {
      fault(fmt::format("rank {} {}: {} {}", rank, what, state.operation, text));
    };
    if (ranks_.ended(rank) == 0)
      return fault(fmt::format("rank {} has not ended; {} operations, error: {}", rank, state.operations.load(), text));
    if (!WIFEXITED(ranks_.status(rank)) || WEXITSTATUS(ranks_.status(rank)) != 0)
      return fault(fmt::format("rank {} ended with status {:x}", rank, ranks_.status(rank)));
    if (state.failed == 0) return fault(fmt::format("rank {} got no error", rank));
    if (killed_[0] == 0 || state.failed < killed_[0]) return end("failed before the kill");
    if (!names_a_victim(trial_, state)) end("names another rank");
    const auto code = static_cast<Errc>(state.code.load());
    if (code != Errc::peer_lost && code != Errc::bootstrap && code != Errc::timeout)
      end(fmt::format("got {}", to_string(code)));
    const std::int64_t begin = std::max(killed_[0], state.entered.load());
    const double seconds = static_cast<double>(state.failed - begin) * 1e-9;
    const double corrected = std::max(0.0, seconds - sleeper_.late_between(begin, state.failed));
    const bool before = std::ranges::any_of(
        trial_.victims, [&](Rank victim) { return ranks_.state(victim).stage == RankState::starting; });
    verdict_.survivors.push_back({seconds, corrected, before});
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    const double bound = before ? kRendezvousSeconds + 1.5 : trial_.ranks() > cores ? 3.0 : 1.0;
    if (corrected > bound) end(fmt::format("got its error after {:.3f} s ({:.3f} s)", seconds, corrected));
    const double until_end = static_cast<double>(ranks_.ended(rank) - state.failed) * 1e-9;
    if (until_end > kEndSeconds) end(fmt::format("ended {:.3f} s after its error", until_end));
  }

  const KillTrial& trial_;
  const Ranks& ranks_;
  const std::vector<std::int64_t> killed_;
  const Sleeper& sleeper_;
  KillVerdict& verdict_;
};

}  // namespace

std::string_view to_string(KillPhase phase) noexcept {
  constexpr std::string_view kNames[] = {"start", "calls", "groups", "top_k", "split", "rebuilding", "destruction"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view to_string(KillWire wire) noexcept {
  constexpr std::string_view kNames[] = {"shared_memory", "tcp", "tcp_without_datagrams", "ucx", "mixed"};
  return kNames[static_cast<std::size_t>(wire)];
}

std::string KillTrial::text() const {
  const std::string when =
      operation >= 0 ? fmt::format("at operation {}", operation) : fmt::format("after {} us", after_us);
  return fmt::format("trial {} of seed {}: {}, {}, hosts {}, kills {} {}{}", index, seed, to_string(phase),
                     to_string(wire), fmt::join(hosts, ","), fmt::join(victims, ","), when,
                     measures ? ", measures" : "");
}

KillTrial draw_trial(std::uint64_t seed, std::uint64_t index, const std::vector<KillWire>& wires) {
  std::mt19937_64 random(seed * 7'919 + index * 104'729);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  KillTrial trial;
  trial.seed = seed;
  trial.index = index;
  // Neighbouring trials differ in phase and wire, so that few trials cover all.
  trial.phase = kKillPhases[index % std::size(kKillPhases)];
  trial.wire = wires[index / std::size(kKillPhases) % wires.size()];
  const int ranks = 2 + below(3);
  for (Rank rank = 0; rank < ranks; ++rank) switch (trial.wire) {
      case KillWire::shared_memory: trial.hosts.push_back(0); break;
      case KillWire::mixed: trial.hosts.push_back(rank == 0 ? 0 : rank == 1 ? 1 : below(2)); break;
      default: trial.hosts.push_back(rank);
    }
  trial.victims.push_back(below(ranks));
  if (ranks > 2 && below(6) == 0) trial.victims.push_back((trial.victims[0] + 1 + below(ranks - 1)) % ranks);
  trial.between_us = below(20'000);
  if (trial.phase != KillPhase::start && below(2) == 0) trial.operation = below(30);
  const int longest_start = trial.wire == KillWire::ucx ? 250'000 : 60'000;
  trial.after_us = below(trial.phase == KillPhase::start ? longest_start : 20'000);
  trial.measures = trial.phase == KillPhase::start && below(4) == 0;
  for (Rank rank = 0; rank < ranks; ++rank) trial.leaving.push_back(static_cast<Leaving>(below(3)));
  return trial;
}

KillVerdict run_trial(const KillTrial& trial, const Sleeper& sleeper) {
  KillVerdict verdict;
  const std::set<std::string> before = shared_files();
  Ranks ranks(trial);
  const std::vector<std::int64_t> killed = carry_out(trial, ranks, verdict);
  Judge(trial, ranks, killed, sleeper, verdict).judge();
  if (ranks.all_ended())
    for (const std::string& name : ranks.leftovers(before)) verdict.faults.push_back("left behind: " + name);
  if (!verdict.faults.empty()) verdict.output = ranks.output();
  return verdict;
}

}  // namespace collectives::testing
