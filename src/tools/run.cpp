// collectives_run: starts N ranks of a program on this host, without MPI.
//
//   collectives_run -n 4 ./trainer --epochs 3
//
// Each rank is a process in a process group of its own, told its place by RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The port cannot be taken by somebody else in between: the launcher
// itself opens it and rank 0 inherits the listening socket (COLLECTIVES_LISTEN_FD).
//
// When a rank fails it is named, the others have `--grace` to report it themselves and end, then they are ended. Ranks
// never outlive the launcher: should it be killed, a guard process that notices kills their groups.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kUsageError = 2, kTimedOut = 124, kCannotExecute = 126, kNotFound = 127, kKilledBy = 128;
constexpr auto kTermToKill = std::chrono::seconds(1);       // what a rank has to heed SIGTERM
constexpr auto kSettling = std::chrono::milliseconds(200);  // from the first failure until its cause is judged
constexpr auto kLongestDeath = std::chrono::seconds(5);     // of a rank that is going away, until it can be waited for
constexpr std::size_t kLongestLine = 65536;                 // bytes; a longer one is cut

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

struct Arguments {
  int ranks = 0;
  bool prefix = false;
  double grace = 2;               // seconds
  std::optional<double> timeout;  // seconds
  std::vector<std::string> command;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

/// To stderr; if nobody reads it any more, there is nobody to tell.
void say(const std::string& line) {
  const std::string text = "collectives_run: " + line + "\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// ---- One rank ------------------------------------------------------------------------------------------------------

/// What a rank writes to one of its streams, passed on line by line with the rank in front.
class Forwarder {
 public:
  Forwarder() = default;
  Forwarder(int rank, int from, int to) : rank_(rank), from_(from), to_(to) {}

  int fd() const { return from_; }

  /// Passes on some of what is there now; false when nothing is.
  bool forward() {
    std::array<char, 16384> buffer;
    if (from_ < 0) return false;
    const ssize_t bytes = ::read(from_, buffer.data(), buffer.size());
    if (bytes < 0) return errno == EINTR;
    if (bytes == 0) finish();
    line_.append(buffer.data(), static_cast<std::size_t>(bytes));
    for (auto end = line_.find('\n'); end != line_.npos; end = line_.find('\n')) {
      pass_on(line_.substr(0, end));
      line_.erase(0, end + 1);
    }
    if (line_.size() > kLongestLine) {
      pass_on(line_);
      line_.clear();
    }
    return bytes > 0;
  }

  /// Passes on the rest when nobody of ours can write any more. A process that left its group still may, so no more
  /// than a pipe holds is waited for.
  void drain() {
    for (int reads = 0; reads < 64 && forward(); ++reads) {
    }
    finish();
  }

 private:
  void finish() {
    if (!line_.empty()) pass_on(line_);
    line_.clear();
    close_source();
  }
  void pass_on(std::string_view line) {
    const std::string text = fmt::format("[{}] {}\n", rank_, line);
    for (std::size_t done = 0; done < text.size() && from_ >= 0;) {
      const ssize_t bytes = ::write(to_, text.data() + done, text.size() - done);
      if (bytes > 0) done += static_cast<std::size_t>(bytes);
      if (bytes < 0 && errno != EINTR) close_source();  // nobody reads: the rank shall learn it as usual, by SIGPIPE
    }
  }
  void close_source() {
    if (from_ >= 0) ::close(from_);
    from_ = -1;
  }

  int rank_ = 0, from_ = -1, to_ = -1;
  std::string line_;  // begun and not ended
};

struct Rank {
  int number = 0;
  pid_t pid = 0;  // of the process and its group
  bool running = false;
  Forwarder out, err;
};

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  return ends;
}

// ---- The guard -----------------------------------------------------------------------------------------------------

/// A process that outlives the launcher by a moment. It hears of every group that starts (its id) and ends (minus its
/// id), then 0; if the launcher falls silent before that, it kills the groups that are left.
class Guard {
 public:
  Guard() {
    const auto ends = make_pipe();
    pid_ = ::fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) {
      ::close(ends[1]);
      watch(ends[0]);
    }
    ::close(ends[0]);
    pipe_ = ends[1];
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() {
    tell(0);
    ::close(pipe_);
    ::waitpid(pid_, nullptr, 0);
  }
  void tell(pid_t word) {
    [[maybe_unused]] const ssize_t sent = ::write(pipe_, &word, sizeof word);  // SIGPIPE is ignored; so is its loss
  }

 private:
  [[noreturn]] static void watch(int pipe) {
    ::setpgid(0, 0);  // out of reach of Ctrl-C
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    std::vector<pid_t> groups;
    pid_t word = 0;
    while (::read(pipe, &word, sizeof word) == sizeof word) {
      if (word == 0) ::_exit(0);
      if (word > 0) groups.push_back(word);
      if (word < 0) std::erase(groups, -word);
    }
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    ::_exit(0);
  }

  pid_t pid_ = 0;
  int pipe_ = -1;
};

// ---- The launcher --------------------------------------------------------------------------------------------------

class Launcher {
 public:
  explicit Launcher(const Arguments& arguments) : arguments_(arguments) {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would hide how ranks end
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

  /// Starts the ranks and waits for all of them; the exit status.
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

  /// A port of the loopback that is ours from now on.
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
  }

  /// 0, or why the program cannot be executed.
  int start(int number) {
    const auto failure = make_pipe();  // closed by a successful exec
    std::array<std::array<int, 2>, 2> streams{};
    if (arguments_.prefix) streams = {make_pipe(), make_pipe()};
    const bool feeds = number == 0 && forwards_stdin_;
    std::array<int, 2> input{-1, -1};
    if (feeds) input = make_pipe();
    const pid_t launcher = ::getpid();

    const pid_t pid = ::fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(kCannotExecute);  // it died before we asked to be told
      set_place(number);
      ::dup2(feeds ? input[0] : number == 0 ? STDIN_FILENO : ::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
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

    ::setpgid(pid, pid);  // here as well: whoever comes first
    guard_->tell(pid);
    Rank rank{.number = number, .pid = pid, .running = true, .out = {}, .err = {}};
    if (arguments_.prefix) {
      for (const auto& stream : streams) {
        ::close(stream[1]);
        ::fcntl(stream[0], F_SETFL, O_NONBLOCK);
      }
      rank.out = Forwarder(number, streams[0][0], STDOUT_FILENO);
      rank.err = Forwarder(number, streams[1][0], STDERR_FILENO);
    }
    if (feeds) {
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
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // of a launcher around this one, as all of these
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
    const bool reads_input = input_ >= 0 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();  // not from the background
    if (reads_input) entries.push_back({STDIN_FILENO, POLLIN, 0});
    int milliseconds = failures_.empty() || judged_ ? -1 : 10;
    if (const auto next = std::min(timeout_at_, next_step_at_); milliseconds < 0 && next != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      milliseconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
    }
    ::poll(entries.data(), entries.size(), milliseconds);
    if (reads_input && entries.back().revents != 0) feed_input();
  }

  /// A terminal gives its input to the foreground group only, so the launcher hands it on to rank 0.
  void feed_input() {
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
        signal_all(number);
        continue;
      }
      // Of several that have ended since the last look, the signal names the first; the others follow in any order.
      const auto first = std::ranges::find(ranks_, static_cast<pid_t>(info.ssi_pid), &Rank::pid);
      if (first != ranks_.end()) look_at(*first);
      for (Rank& rank : ranks_) look_at(rank);
    }
  }

  void look_at(Rank& rank) {
    if (!rank.running) return;
    const auto how = reap(rank, WNOHANG);
    if (!how || (how->si_code == CLD_EXITED && how->si_status == 0)) return;
    if (failures_.empty()) first_failure_at_ = Clock::now();
    failures_.push_back({&rank, *how});
  }

  /// Names the rank that failed first, once that is known. A rank that dies closes its connections before its end can
  /// be seen here, so others may exit with an error before it: a killed rank is rather the cause than one that exited.
  void judge() {
    if (failures_.empty() || judged_) return;
    const auto killed = [](const Failure& failure) { return failure.how.si_code != CLD_EXITED; };
    auto cause = std::ranges::find_if(failures_, killed);
    if (cause == failures_.end()) {
      const auto waited = Clock::now() - first_failure_at_;
      if (any_running() && (waited < kSettling || (waited < kLongestDeath && any_exiting()))) return;
      cause = failures_.begin();
    }
    judged_ = true;
    const int number = cause->how.si_status;
    if (status_ == 0) status_ = killed(*cause) ? kKilledBy + number : number;
    say(fmt::format("rank {} (pid {}) {}", cause->rank->number, cause->rank->pid,
                    killed(*cause) ? fmt::format("was killed by signal {} ({})", number, ::strsignal(number))
                                   : fmt::format("exited with status {}", number)));
    next_step_at_ = std::min(next_step_at_, first_failure_at_ + to_duration(arguments_.grace));
  }

  /// Whether a rank has begun to die, and cannot be waited for yet.
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

  /// How the rank has ended, if it has. Its group goes with it, while its id still cannot be anybody else's.
  std::optional<siginfo_t> reap(Rank& rank, int options) {
    siginfo_t how{};
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &how, WEXITED | WNOWAIT | options) != 0 || how.si_pid == 0) {
      return std::nullopt;
    }
    ::kill(-rank.pid, SIGKILL);
    ::waitpid(rank.pid, nullptr, 0);
    guard_->tell(-rank.pid);
    rank.running = false;
    return how;
  }

  void end_the_late() {
    const auto now = Clock::now();
    if (!any_running()) return;
    if (now >= timeout_at_) {
      say(fmt::format("{} still running after {} s: ending", running_ranks(), *arguments_.timeout));
      if (status_ == 0) status_ = kTimedOut;
      timeout_at_ = Clock::time_point::max();
      judged_ = true;  // what ends from here on was ended
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
  bool forwards_stdin_ = false;
  int input_ = -1;  // of rank 0, when the launcher feeds it
  std::optional<Guard> guard_;
  std::vector<Rank> ranks_;
  std::vector<Failure> failures_;  // in the order in which they were seen
  Clock::time_point first_failure_at_;
  bool judged_ = false;  // the cause has been named
  int status_ = 0;
  Clock::time_point timeout_at_ = Clock::time_point::max();
  Clock::time_point next_step_at_ = Clock::time_point::max();  // of ending those that are left
  int next_step_ = SIGTERM;
};

// ---- Arguments -----------------------------------------------------------------------------------------------------

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Runs N ranks of a program on this host:\ncollectives_run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]",
               "collectives_run");
  const CLI::AsNumberWithUnit duration(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}},
                                       CLI::AsNumberWithUnit::CASE_SENSITIVE, "DURATION");
  app.add_option("-n", arguments.ranks, "ranks to start")->required()->check(CLI::Range(1, 4096));
  app.add_flag("--prefix,--tag-output", arguments.prefix, "put [rank] in front of every line of output");
  app.add_option("--grace", arguments.grace, "what the others have to end after a rank has failed (2s, 500ms)")
      ->transform(duration)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout, "end everything after so long (30s, 5min)")
      ->transform(duration)
      ->check(CLI::PositiveNumber);
  app.prefix_command();
  try {
    app.parse(argc, argv);
    arguments.command = app.remaining();
    if (!arguments.command.empty() && arguments.command[0] == "--") {
      arguments.command.erase(arguments.command.begin());
    } else if (!arguments.command.empty() && arguments.command[0].starts_with('-')) {
      throw CLI::ExtrasError({arguments.command[0]});
    }
    if (arguments.command.empty()) throw CLI::RequiredError("PROGRAM");
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    say(fmt::format("{} (collectives_run -n N [--prefix] [--grace DURATION] [--timeout DURATION] [--] PROGRAM ...)",
                    error.what()));
    std::exit(kUsageError);
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  try {
    return Launcher(arguments).run();
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
