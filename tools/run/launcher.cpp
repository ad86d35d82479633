// Implementation of the launcher of collectives_run, which runs the ranks of a program on this host. The launcher
// starts one process per rank, forwards signals to the ranks, and copies their output. After a failure, it reports
// which rank failed first, and ends the other ranks.
#include "tools/run/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tools/run/guard.hpp"
#include "tools/run/output.hpp"

namespace collectives::run {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kTimedOut = 124, kCannotExecute = 126, kNotFound = 127, kKilledBy = 128;
constexpr auto kTermToKill = std::chrono::seconds(1);  // time from SIGTERM to SIGKILL of a rank
// Time from the first failure that the launcher sees until it reports which rank failed first. More ranks may fail in
// this time. If a signal has killed a rank, the launcher reports at once.
constexpr auto kDiagnosisDelay = std::chrono::milliseconds(200);
constexpr auto kLongestDeath = std::chrono::seconds(5);  // maximum time until that report while a rank is exiting

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

struct Rank {
  int number = 0;
  pid_t pid = 0;  // id of the process and of its group
  bool running = false;
  Forwarder out, err;
};

class Launcher {
 public:
  explicit Launcher(const Arguments& arguments) : arguments_(arguments) {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);  // if SIGCHLD is ignored, waitid() does not return the exit status of a rank
    sigset_t watched;
    ::sigemptyset(&watched);
    ::sigaddset(&watched, SIGCHLD);
    for (const int number : kForwarded) ::sigaddset(&watched, number);
    ::sigprocmask(SIG_BLOCK, &watched, &original_mask_);
    signals_ = ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) fail("signalfd");
    guard_.emplace();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() {
    signal_all(SIGKILL);
    for (Rank& rank : ranks_) {
      if (rank.running) reap(rank, 0);
    }
  }

  /// Starts the ranks and waits for all of them. Returns the exit status of the launcher.
  int run() {
    open_port();
    forwards_stdin_ = ::isatty(STDIN_FILENO) != 0;
    for (int rank = 0; rank < arguments_.ranks; ++rank) {
      if (const int code = start(rank); code != 0) {
        say(fmt::format("{}: {}", arguments_.command[0], std::strerror(code)));
        return code == ENOENT ? kNotFound : kCannotExecute;
      }
    }
    ::close(port_socket_);
    if (arguments_.timeout) timeout_at_ = Clock::now() + to_duration(*arguments_.timeout);
    while (any_running()) {
      wait();
      look_at_signals();
      judge();
      forward_output();
      end_the_late();
    }
    for (Rank& rank : ranks_) {
      rank.out.drain();
      rank.err.drain();
    }
    return status_;
  }

 private:
  static Clock::duration to_duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  bool any_running() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.running; });
  }
  std::string running_ranks() const {
    std::string names;
    for (const Rank& rank : ranks_) {
      if (rank.running) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank.number);
    }
    return (names.find(',') == names.npos ? "rank " : "ranks ") + names;
  }
  void signal_all(int number) {
    for (const Rank& rank : ranks_) {
      if (rank.running) ::kill(-rank.pid, number);
    }
  }

  /// Chooses a name for the job, and listens at a port of 127.0.0.1, through which the ranks connect. Rank 0 inherits
  /// the socket, and the launcher then closes its own copy. The port is thus always open, so no other process can take
  /// it.
  void open_port() {
    port_socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (port_socket_ < 0 || ::bind(port_socket_, generic, bytes) != 0 || ::listen(port_socket_, SOMAXCONN) != 0 ||
        ::getsockname(port_socket_, generic, &bytes) != 0) {
      fail("no port on 127.0.0.1");
    }
    port_ = ntohs(address.sin_port);
    std::random_device random;
    job_ = fmt::format("collectives_run-{}-{:08x}", ::getpid(), random());
  }

  /// Starts the process of rank `number`. Returns 0, or the errno of exec().
  int start(int number) {
    const auto failure = make_pipe();  // pipe for the errno of exec(); a successful exec() closes it
    std::array<std::array<int, 2>, 2> streams{};
    if (arguments_.prefix) streams = {make_pipe(), make_pipe()};
    const bool forwards = number == 0 && forwards_stdin_;
    std::array<int, 2> input{-1, -1};
    if (forwards) input = make_pipe();
    const pid_t launcher = ::getpid();

    const pid_t pid = ::fork();
    if (pid < 0) fail("fork (see RLIMIT_NPROC, ulimit -u, and pids.max of the control group)");
    if (pid == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(kCannotExecute);  // the launcher ended before prctl() took effect
      set_place(number);
      ::dup2(forwards      ? input[0]
             : number == 0 ? STDIN_FILENO
                           : ::open("/dev/null", O_RDONLY | O_CLOEXEC),
             STDIN_FILENO);
      if (arguments_.prefix) {
        ::dup2(streams[0][1], STDOUT_FILENO);
        ::dup2(streams[1][1], STDERR_FILENO);
      }
      ::signal(SIGPIPE, SIG_DFL);
      ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
      execute();
      const int code = errno;
      [[maybe_unused]] const ssize_t sent = ::write(failure[1], &code, sizeof code);
      ::_exit(kNotFound);
    }

    ::setpgid(pid, pid);  // parent and child both make this call, so neither acts before the group exists
    guard_->notify(pid);
    Rank rank{.number = number, .pid = pid, .running = true, .out = {}, .err = {}};
    if (arguments_.prefix) {
      for (const auto& stream : streams) {
        ::close(stream[1]);
        ::fcntl(stream[0], F_SETFL, O_NONBLOCK);
      }
      rank.out = Forwarder(number, streams[0][0], STDOUT_FILENO);
      rank.err = Forwarder(number, streams[1][0], STDERR_FILENO);
    }
    if (forwards) {
      ::close(input[0]);
      input_ = input[1];
    }
    ranks_.push_back(std::move(rank));

    ::close(failure[1]);
    int code = 0;
    if (::read(failure[0], &code, sizeof code) != sizeof code) code = 0;
    ::close(failure[0]);
    return code;
  }

  void set_place(int number) const {
    const auto set = [](const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); };
    set("RANK", number);
    set("LOCAL_RANK", number);
    set("WORLD_SIZE", arguments_.ranks);
    set("LOCAL_WORLD_SIZE", arguments_.ranks);
    set("MASTER_PORT", port_);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("COLLECTIVES_JOB", job_.c_str(), 1);
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // an outer launcher may have set it
    ::unsetenv("COLLECTIVES_LISTEN_FD");
    if (number == 0) {
      ::fcntl(port_socket_, F_SETFD, 0);
      set("COLLECTIVES_LISTEN_FD", port_socket_);
    }
  }

  void execute() const {
    std::vector<char*> words;
    for (const std::string& word : arguments_.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
  }

  void wait() {
    std::vector<pollfd> entries{{signals_, POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      for (const Forwarder* stream : {&rank.out, &rank.err}) {
        if (stream->fd() >= 0) entries.push_back({stream->fd(), POLLIN, 0});
      }
    }
    const bool reads_input = input_ >= 0 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();  // a background group cannot read
    if (reads_input) entries.push_back({STDIN_FILENO, POLLIN, 0});
    int milliseconds = failures_.empty() || judged_ ? -1 : 10;
    if (const auto next = std::min({timeout_at_, next_step_at_, kill_at_});
        milliseconds < 0 && next != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      milliseconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
    }
    ::poll(entries.data(), entries.size(), milliseconds);
    if (reads_input && entries.back().revents != 0) forward_input();
  }

  /// Copies input of the terminal to rank 0, because a terminal serves the foreground group only.
  void forward_input() {
    std::array<char, 4096> buffer;
    const ssize_t bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) return;
    if (bytes <= 0 || ::write(input_, buffer.data(), static_cast<std::size_t>(bytes)) != bytes) {
      ::close(input_);
      input_ = -1;
    }
  }

  void forward_output() {
    for (Rank& rank : ranks_) {
      rank.out.forward();
      rank.err.forward();
    }
  }

  void look_at_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      const auto number = static_cast<int>(info.ssi_signo);
      if (number != SIGCHLD) {
        forward_signal(number);
        continue;
      }
      // The signal names the first rank that has ended since the last signal was read. The order of other ranks is
      // unknown.
      const auto first = std::ranges::find(ranks_, static_cast<pid_t>(info.ssi_pid), &Rank::pid);
      if (first != ranks_.end()) look_at(*first);
      for (Rank& rank : ranks_) look_at(rank);
    }
  }

  /// Forwards a signal. SIGINT and SIGTERM ask the ranks to end, so they start the grace. A second SIGINT ends it.
  void forward_signal(int number) {
    signal_all(number);
    if (number != SIGINT && number != SIGTERM) return;
    const auto now = Clock::now();
    if (stopped_by_ == 0) {
      stopped_by_ = number;
      kill_at_ = now + to_duration(arguments_.grace);
    } else if (number == SIGINT && is_interrupted_ && any_running()) {
      say(fmt::format("second SIGINT: killing {}", running_ranks()));
      kill_ranks();
    }
    is_interrupted_ = is_interrupted_ || number == SIGINT;
  }

  /// Kills all ranks, stopped ones included, because a signal has asked this program to end.
  void kill_ranks() {
    signal_all(SIGKILL);
    if (status_ == 0) status_ = kKilledBy + stopped_by_;
    judged_ = true;  // the launcher itself ends the ranks from here on
    kill_at_ = next_step_at_ = Clock::time_point::max();
  }

  void look_at(Rank& rank) {
    if (!rank.running) return;
    const auto how = reap(rank, WNOHANG);
    if (!how || (how->si_code == CLD_EXITED && how->si_status == 0)) return;
    if (failures_.empty()) first_failure_at_ = Clock::now();
    failures_.push_back({&rank, *how});
  }

  /// Prints which rank failed first, once this is decided. The connections of a dying rank close before waitid()
  /// reports its end, so other ranks may exit with an error before that. If some ranks were killed by a signal and
  /// others exited, a killed rank is therefore taken for the cause.
  void judge() {
    if (failures_.empty() || judged_) return;
    const auto killed = [](const Failure& failure) { return failure.how.si_code != CLD_EXITED; };
    auto cause = std::ranges::find_if(failures_, killed);
    if (cause == failures_.end()) {
      const auto waited = Clock::now() - first_failure_at_;
      if (any_running() && (waited < kDiagnosisDelay || (waited < kLongestDeath && any_exiting()))) return;
      cause = failures_.begin();
    }
    judged_ = true;
    const int number = cause->how.si_status;
    if (status_ == 0) status_ = killed(*cause) ? kKilledBy + number : number;
    say(fmt::format("rank {} (pid {}) {}", cause->rank->number, cause->rank->pid,
                    killed(*cause) ? fmt::format("was killed by signal {} ({})", number, ::strsignal(number))
                                   : fmt::format("exited with status {}", number)));
    // After SIGINT or SIGTERM, the ranks have received a signal to end already.
    if (stopped_by_ == 0) next_step_at_ = std::min(next_step_at_, first_failure_at_ + to_duration(arguments_.grace));
  }

  /// Returns true if a rank has begun to exit and waitid() does not see it yet.
  bool any_exiting() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) {
      if (!rank.running) return false;
      std::ifstream file(fmt::format("/proc/{}/stat", rank.pid));
      std::string text;
      std::getline(file, text);
      std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
      std::string skipped;
      for (int field = 3; field < 9; ++field) fields >> skipped;
      constexpr unsigned kExiting = 4;  // PF_EXITING
      unsigned flags = 0;
      fields >> flags;
      return (flags & kExiting) != 0;
    });
  }

  /// Returns how the rank has ended, or nothing if it runs. Kills the rest of its process group while the id of the
  /// group cannot be reused.
  std::optional<siginfo_t> reap(Rank& rank, int options) {
    siginfo_t how{};
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &how, WEXITED | WNOWAIT | options) != 0 || how.si_pid == 0) {
      return std::nullopt;
    }
    ::kill(-rank.pid, SIGKILL);
    ::waitpid(rank.pid, nullptr, 0);
    guard_->notify(-rank.pid);
    rank.running = false;
    return how;
  }

  void end_the_late() {
    const auto now = Clock::now();
    if (!any_running()) return;
    if (now >= kill_at_) {
      say(fmt::format("{} still running {} s after {}: killing", running_ranks(), arguments_.grace,
                      stopped_by_ == SIGINT ? "SIGINT" : "SIGTERM"));
      return kill_ranks();
    }
    if (now >= timeout_at_) {
      say(fmt::format("{} still running after {} s: ending", running_ranks(), *arguments_.timeout));
      if (status_ == 0) status_ = kTimedOut;
      timeout_at_ = Clock::time_point::max();
      judged_ = true;  // the launcher itself ends the ranks from here on
    } else if (now >= next_step_at_) {
      if (next_step_ == SIGTERM) {
        say(fmt::format("{} still running {} s later: ending", running_ranks(), arguments_.grace));
      }
    } else {
      return;
    }
    signal_all(next_step_);
    next_step_at_ = next_step_ == SIGTERM ? now + kTermToKill : Clock::time_point::max();
    next_step_ = SIGKILL;
  }

  struct Failure {
    const Rank* rank;
    siginfo_t how;
  };

  const Arguments& arguments_;
  sigset_t original_mask_{};
  int signals_ = -1;
  int port_socket_ = -1, port_ = 0;
  std::string job_;  // name by which the ranks refuse ranks of other jobs
  bool forwards_stdin_ = false;
  int input_ = -1;  // pipe to the standard input of rank 0
  std::optional<Guard> guard_;
  std::vector<Rank> ranks_;
  std::vector<Failure> failures_;  // in the order of their detection
  Clock::time_point first_failure_at_;
  bool judged_ = false;  // true after the cause has been printed
  int status_ = 0;
  Clock::time_point timeout_at_ = Clock::time_point::max();
  Clock::time_point next_step_at_ = Clock::time_point::max();  // time of the next signal to the remaining ranks
  int next_step_ = SIGTERM;
  int stopped_by_ = 0;           // first SIGINT or SIGTERM that this program has received, or 0
  bool is_interrupted_ = false;  // true after the first SIGINT
  Clock::time_point kill_at_ = Clock::time_point::max();  // time at which that grace ends
};

}  // namespace

int launch(const Arguments& arguments) { return Launcher(arguments).run(); }

}  // namespace collectives::run
