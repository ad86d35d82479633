// Ranks never outlive the launcher, even one that is killed: a guard process sees to that.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

namespace collectives::run {

/// Throws what errno says about `what`.
[[noreturn]] void fail(const std::string& what);

/// Its reading and its writing end, both closed by exec.
std::array<int, 2> make_pipe();

/// A process that outlives the launcher by a moment. It hears of every group that starts (its id) and ends (minus its
/// id), then 0; if the launcher falls silent before that, it kills the groups that are left.
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
