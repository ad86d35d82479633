// Tests of the launcher collectives_run, which starts ranks on this host. The ranks are shell scripts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/deadline.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kBootstrapProbe[];

namespace collectives::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

struct Result {
  int status = -1;  // exit status; 128 + signal if a signal ended it
  std::string out, err;
};

/// A running collectives_run with these arguments.
class Launch {
 public:
  explicit Launch(std::vector<std::string> arguments, const std::string& input = {}) {
    std::array<int, 2> in{}, out{}, err{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC) | ::pipe2(out.data(), O_CLOEXEC) | ::pipe2(err.data(), O_CLOEXEC), 0);
    std::vector<char*> words{const_cast<char*>(kCollectivesRun)};
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      ::execv(words[0], words.data());
      ::_exit(99);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    EXPECT_EQ(::write(in[1], input.data(), input.size()), static_cast<ssize_t>(input.size()));
    ::close(in[1]);
    out_.fd = out[0];
    err_.fd = err[0];
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() {
    if (pid_ > 0) {
      signal(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {out_.fd, err_.fd}) {
      if (fd >= 0) ::close(fd);
    }
  }

  void signal(int number) const { ::kill(pid_, number); }

  /// Reads until stdout has `lines` lines.
  std::string read_lines(std::ptrdiff_t lines) {
    while (std::ranges::count(out_.text, '\n') < lines && read_some()) {
    }
    return out_.text;
  }
  /// Reads to the end of both streams, then waits for the launcher.
  Result finish() {
    while (read_some()) {
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_.text, err_.text};
  }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
  };

  /// Returns false if both streams have ended, or after a minute without output.
  bool read_some() {
    std::array<pollfd, 2> entries{pollfd{out_.fd, POLLIN, 0}, pollfd{err_.fd, POLLIN, 0}};
    if (out_.fd < 0 && err_.fd < 0) return false;
    const int ready = ::poll(entries.data(), entries.size(), std::chrono::milliseconds(kPatience).count());
    if (ready == 0) {
      ADD_FAILURE() << "collectives_run has been silent for a minute; so far:\n" << out_.text << err_.text;
      signal(SIGKILL);
      return false;
    }
    for (const auto& [entry, stream] : {std::pair{&entries[0], &out_}, std::pair{&entries[1], &err_}}) {
      if (entry->revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t bytes = ::read(stream->fd, buffer.data(), buffer.size());
      if (bytes > 0) {
        stream->text.append(buffer.data(), static_cast<std::size_t>(bytes));
      } else {
        ::close(stream->fd);
        stream->fd = -1;
      }
    }
    return true;
  }

  pid_t pid_ = 0;
  Stream out_, err_;
};

Result run(std::vector<std::string> arguments, const std::string& input = {}) {
  return Launch(std::move(arguments), input).finish();
}

/// Runs `ranks` ranks of a shell script by collectives_run.
Result run_script(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"sh", "-c", script});
  return run(std::move(options));
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

using Lines = std::multiset<std::string>;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Returns true if the process has ended. It may still be a zombie, for which its parent has not waited.
bool gone(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  return name_end == text.npos || text.compare(name_end + 2, 1, "Z") == 0;
}

void expect_gone(const std::string& pids) {
  std::istringstream stream(pids);
  int seen = 0;
  for (pid_t pid = 0; stream >> pid; ++seen) {
    const Deadline deadline = Deadline::in(kPatience);
    while (!gone(pid) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(gone(pid)) << "process " << pid << " is left behind";
  }
  EXPECT_GT(seen, 0);
}

TEST(CollectivesRun, EveryRankLearnsItsPlace) {
  const Result result = run_script(3, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(lines_of(result.out), (Lines{"0 0 3 3 127.0.0.1", "1 1 3 3 127.0.0.1", "2 2 3 3 127.0.0.1"}));
  EXPECT_EQ(result.err, "");
}

TEST(CollectivesRun, RanksMeetWithoutMpi) {
  const Result result = run({"-n", "4", kBootstrapProbe});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines_of(result.out), (Lines{"0 of 4 met 0123", "1 of 4 met 0123", "2 of 4 met 0123", "3 of 4 met 0123"}));
}

TEST(CollectivesRun, RanksMeetAgainInTheNextProgram) {
  const std::string probe = kBootstrapProbe;
  const Result result = run_script(2, probe + " && " + probe);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines_of(result.out), (Lines{"0 of 2 met 01", "0 of 2 met 01", "1 of 2 met 01", "1 of 2 met 01"}));
}

TEST(CollectivesRun, RanksMeetInsideTorchrunsEnvironment) {
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  ::setenv("COLLECTIVES_LISTEN_FD", "77", 1);
  const Result result = run({"-n", "2", kBootstrapProbe});
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  ::unsetenv("COLLECTIVES_LISTEN_FD");
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(CollectivesRun, SurvivorsReportTheKilledRank) {
  for (const char* const lost : {"0", "2"}) {
    const Result result = run({"-n", "3", "--grace", "60s", kBootstrapProbe, "--lose", lost});
    EXPECT_EQ(result.status, 128 + SIGKILL);
    EXPECT_TRUE(contains(result.err, "collectives_run: rank " + std::string(lost) + " (pid ")) << result.err;
    EXPECT_TRUE(contains(result.err, ") was killed by signal 9 (Killed)\n")) << result.err;
    std::istringstream lines(result.err);
    int reports = 0;
    for (std::string line; std::getline(lines, line);) {
      reports += line.starts_with("rank " + std::string(lost) + " left the rendezvous") ? 1 : 0;
    }
    EXPECT_EQ(reports, 2) << result.err;
  }
}

TEST(CollectivesRun, StatusIsThatOfTheFailingRank) {
  const Result result = run_script(3, "exit $((RANK == 1 ? 7 : 0))");
  EXPECT_EQ(result.status, 7);
  EXPECT_TRUE(contains(result.err, "collectives_run: rank 1 (pid ")) << result.err;
  EXPECT_TRUE(contains(result.err, ") exited with status 7\n")) << result.err;
}

TEST(CollectivesRun, OthersHaveTheGraceToReport) {
  const Result result =
      run_script(2, "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.3; echo reported", {"--grace", "60s"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "reported\n");
  EXPECT_FALSE(contains(result.err, "still running")) << result.err;
}

TEST(CollectivesRun, AfterTheGraceTermComesBeforeKill) {
  const Result result =
      run_script(3, "if [ $RANK = 2 ]; then exit 3; fi; trap 'echo term; exit 0' TERM; while :; do sleep 0.05; done",
                 {"--grace", "500ms"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "term\nterm\n");
  EXPECT_TRUE(contains(result.err, "ranks 0, 1 still running 0.5 s later: ending\n")) << result.err;
}

TEST(CollectivesRun, RankDeafToTermIsKilled) {
  const Result result =
      run_script(2, "trap '' TERM; if [ $RANK = 1 ]; then exit 3; fi; while :; do sleep 1; done", {"--grace", "0"});
  EXPECT_EQ(result.status, 3);
}

TEST(CollectivesRun, TimeoutEndsEverything) {
  const Result result = run_script(2, "sleep 1000", {"--timeout", "200ms"});
  EXPECT_EQ(result.status, 124);
  EXPECT_EQ(result.err, "collectives_run: ranks 0, 1 still running after 0.2 s: ending\n");
}

TEST(CollectivesRun, SignalsArePassedOn) {
  for (const int number : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP}) {
    Launch ranks({"-n", "2", "sh", "-c",
                  "trap 'echo heard; exit 0' USR1 USR2 INT TERM HUP; echo ready; while :; do sleep 0.02; done"});
    EXPECT_EQ(ranks.read_lines(2), "ready\nready\n");
    ranks.signal(number);
    const Result result = ranks.finish();
    EXPECT_EQ(result.status, 0) << "signal " << number << ": " << result.err;
    EXPECT_EQ(result.out, "ready\nready\nheard\nheard\n");
  }
}

TEST(CollectivesRun, RankEndedByASignalFromOutsideIsNamed) {
  Launch ranks({"-n", "2", "sh", "-c", "echo ready; exec sleep 1000"});
  ranks.read_lines(2);
  ranks.signal(SIGTERM);
  const Result result = ranks.finish();
  EXPECT_EQ(result.status, 128 + SIGTERM);
  EXPECT_TRUE(contains(result.err, "was killed by signal 15 (Terminated)")) << result.err;
}

TEST(CollectivesRun, RanksThatIgnoreTermOrAreStoppedAreKilledAfterTheGrace) {
  for (const char* const script :
       {"trap '' TERM INT; echo ready; sleep 1000", "trap '' TERM INT; echo ready; kill -STOP $$; sleep 1000"}) {
    for (const int number : {SIGTERM, SIGINT}) {
      Launch ranks({"-n", "2", "--grace", "200ms", "sh", "-c", script});
      EXPECT_EQ(ranks.read_lines(2), "ready\nready\n");
      ranks.signal(number);
      const Result result = ranks.finish();
      EXPECT_EQ(result.status, 128 + number) << script;
      EXPECT_EQ(result.err, std::string("collectives_run: ranks 0, 1 still running 0.2 s after ") +
                                (number == SIGINT ? "SIGINT" : "SIGTERM") + ": killing\n");
    }
  }
}

TEST(CollectivesRun, SecondInterruptKillsAtOnce) {
  Launch ranks(
      {"-n", "2", "--grace", "1h", "sh", "-c", "trap 'echo heard' INT; echo ready; while :; do sleep 0.02; done"});
  ranks.read_lines(2);
  ranks.signal(SIGINT);
  ranks.read_lines(4);
  ranks.signal(SIGINT);
  const Result result = ranks.finish();
  EXPECT_EQ(result.status, 128 + SIGINT);
  EXPECT_EQ(result.err, "collectives_run: second SIGINT: killing ranks 0, 1\n");
}

TEST(CollectivesRun, RanksOfOneRunHaveOneJobName) {
  ::setenv("COLLECTIVES_JOB", "of an outer launcher", 1);
  const Result first = run_script(2, "echo $COLLECTIVES_JOB"), second = run_script(1, "echo $COLLECTIVES_JOB");
  ::unsetenv("COLLECTIVES_JOB");
  const Lines names = lines_of(first.out);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names.count(*names.begin()), 2u);
  EXPECT_TRUE(names.begin()->starts_with("collectives_run-")) << *names.begin();
  EXPECT_NE(*names.begin() + "\n", second.out);
}

TEST(CollectivesRun, GrandchildrenEndWithTheirRank) {
  const Result result = run_script(2, "sleep 1000 & echo $!");
  EXPECT_EQ(result.status, 0);
  expect_gone(result.out);
}

TEST(CollectivesRun, NothingOutlivesAKilledLauncher) {
  Launch ranks({"-n", "2", "sh", "-c", "sleep 1000 & echo $! $$; wait"});
  const std::string pids = ranks.read_lines(2);
  ranks.signal(SIGKILL);
  EXPECT_EQ(ranks.finish().status, 128 + SIGKILL);
  expect_gone(pids);
}

TEST(CollectivesRun, PrefixNamesTheRankOfEveryLine) {
  for (const char* const option : {"--prefix", "--tag-output"}) {
    const Result result = run_script(2, "echo one; echo two; printf unfinished; echo oops >&2", {option});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(lines_of(result.out),
              (Lines{"[0] one", "[0] two", "[0] unfinished", "[1] one", "[1] two", "[1] unfinished"}));
    EXPECT_EQ(lines_of(result.err), (Lines{"[0] oops", "[1] oops"}));
  }
}

TEST(CollectivesRun, MuchOutputArrivesWhole) {
  const Result result = run_script(2, "seq 20000; head -c 100000 /dev/zero | tr '\\0' x", {"--prefix"});
  EXPECT_EQ(result.status, 0);
  const Lines lines = lines_of(result.out);
  for (const char* const line : {"[0] 1", "[0] 20000", "[1] 1", "[1] 20000"}) EXPECT_EQ(lines.count(line), 1u) << line;
  EXPECT_EQ(std::ranges::count(result.out, 'x'), 200'000);
}

TEST(CollectivesRun, InputGoesToRankZero) {
  const Result result = run({"-n", "3", "--prefix", "cat"}, "hello\n");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "[0] hello\n");
}

TEST(CollectivesRun, ProgramThatDoesNotExistIsOneLine) {
  const Result result = run({"-n", "3", "no_such_program", "argument"});
  EXPECT_EQ(result.status, 127);
  EXPECT_EQ(result.err, "collectives_run: no_such_program: No such file or directory\n");
}

TEST(CollectivesRun, ProgramThatMayNotBeExecutedIsOneLine) {
  const Result result = run({"-n", "3", "/"});
  EXPECT_EQ(result.status, 126);
  EXPECT_EQ(result.err, "collectives_run: /: Permission denied\n");
}

TEST(CollectivesRun, ArgumentsOfTheProgramAreItsOwn) {
  EXPECT_EQ(run({"-n", "1", "echo", "-n", "--prefix", "--", "x"}).out, "--prefix -- x");
  EXPECT_EQ(run({"-n", "1", "--", "echo", "--grace"}).out, "--grace\n");
}

TEST(CollectivesRun, BadArgumentsAreOneLineAndStatusTwo) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "-n is required"},
      {{"-n", "2"}, "PROGRAM is required"},
      {{"-n", "0", "true"}, "1 to 4096"},
      {{"-n", "two", "true"}, "two"},
      {{"-n", "2", "--no-such-flag", "true"}, "--no-such-flag"},
      {{"-n", "2", "--grace", "2parsecs", "true"}, "h,min,ms,s"},
      {{"-n", "2", "--grace", "-1", "true"}, "--grace"},
      {{"-n", "2", "--timeout", "0", "true"}, "--timeout"},
  };
  for (const auto& [arguments, names] : cases) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2) << names;
    EXPECT_TRUE(result.err.starts_with("collectives_run: ")) << result.err;
    EXPECT_TRUE(contains(result.err, names)) << "wanted " << names << ", got " << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(CollectivesRun, HelpSaysHowToUseIt) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "PROGRAM"));
}

}  // namespace
}  // namespace collectives::testing
