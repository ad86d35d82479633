// The guard of collectives_run: a process that ends all ranks if the launcher is killed.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

namespace collectives::run {

/// Throws std::runtime_error with `what` and the text of errno.
[[noreturn]] void fail(const std::string& what);

/// Returns the reading and the writing end of a new pipe. exec() closes both.
std::array<int, 2> make_pipe();

/// The guard process, as the launcher sees it. The launcher writes words to the guard through a pipe. A positive word
/// is the id of a process group that starts. A negative word is the negated id of a group that has ended. The word 0
/// means that the launcher ends regularly. If the pipe closes before that, the launcher was killed. The guard then
/// kills the groups that are left.
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
