// A rank that is a child process. The test forks the child and exchanges numbers with it through a socket. The exit
// status of the child is its result.
//
//   Child child([](Line& line) { line.put(line.take() + 1); return 0; });
//   child.line().put(41);
//   EXPECT_EQ(child.line().take(), 42u);
//   EXPECT_EQ(child.wait(), 0);
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

namespace collectives::testing {

/// One end of a connection that carries numbers. take() waits for the next number. Throws if the other end is closed.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void put(std::uint64_t number) {
    if (::send(fd_, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) throw std::runtime_error("nobody listens");
  }
  std::uint64_t take() {
    std::uint64_t number = 0;
    if (::recv(fd_, &number, sizeof number, MSG_WAITALL) != sizeof number) throw std::runtime_error("nobody speaks");
    return number;
  }

 private:
  int fd_;
};

class Child {
 public:
  /// Runs `work(Line&)`, which returns the exit status. If it throws, prints the text and exits with 99.
  template <class Work>
  explicit Child(Work&& work) : Child(pair()) {
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(theirs_);
      return;
    }
    int status = 99;
    try {
      line_.close();  // otherwise the child would not notice the end of the parent
      Line up(theirs_);
      status = std::forward<Work>(work)(up);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(status);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(SIGKILL);
    wait();
  }

  Line& line() { return line_; }
  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  /// Returns the exit status, or the negative number of the signal that ended the child.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static std::pair<int, int> pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    return {ends[0], ends[1]};
  }
  explicit Child(std::pair<int, int> ends) : line_(ends.first), theirs_(ends.second) {}

  Line line_;
  int theirs_;
  pid_t pid_ = 0;
};

}  // namespace collectives::testing
