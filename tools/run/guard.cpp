// Implementation of the guard of collectives_run, which starts ranks on this host. If the launcher process is killed,
// its ranks must not go on running. The guard is a second process, which reads a pipe from the launcher. If the
// launcher ends, the kernel closes the pipe, and the guard kills the ranks.
#include "tools/run/guard.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace collectives::run {
namespace {

[[noreturn]] void watch(int pipe) {
  // a process group of its own, because Ctrl-C would end the guard if it belonged to the foreground group
  ::setpgid(0, 0);
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

}  // namespace

void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  return ends;
}

Guard::Guard() {
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

Guard::~Guard() {
  notify(0);
  ::close(pipe_);
  ::waitpid(pid_, nullptr, 0);
}

void Guard::notify(pid_t word) {
  // Ignores an error of the write: EPIPE means that the guard has already ended.
  [[maybe_unused]] const ssize_t sent = ::write(pipe_, &word, sizeof word);
}

}  // namespace collectives::run
