// The guard process: ends all ranks if the launcher is killed.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

namespace collectives::run {

/// Throws std::runtime_error with `what` and the text of errno.
[[noreturn]] void fail(const std::string& what);

/// Returns the reading and the writing end of a new pipe. exec closes both.
std::array<int, 2> make_pipe();

/// A process that ends after the launcher, which writes to it through a pipe. A positive word is the id of a process
/// group that starts, a negative word the id of one that has ended, and 0 the end of the launcher. If the pipe closes
/// before the word 0, the guard kills the groups that are left.
class Guard {
 public:
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();
  void notify(pid_t word);

 private:
  pid_t pid_ = 0;
  int pipe_ = -1;
};

}  // namespace collectives::run
