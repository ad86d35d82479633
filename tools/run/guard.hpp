// The guard of collectives_run: a process that ends all ranks if the launcher is killed.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

namespace collectives::run {

/// Throws std::runtime_error. Its text is `what` and the text of errno.
[[noreturn]] void fail(const std::string& what);

/// Returns both ends of a new pipe, reading end first. exec() closes both, so ranks do not inherit them.
std::array<int, 2> make_pipe();

/// Handle of the guard process, which the launcher owns. The launcher writes numbers to the guard through a pipe. A
/// positive number is the id of a process group that starts. A negative number is the negated id of a group that has
/// ended. The number 0 means that the launcher ends normally. If the pipe closes without a 0, the launcher was killed.
/// The guard then kills all groups that have not ended.
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
