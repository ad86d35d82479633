// Helpers for tests of resources of a process and of limits on them. A limit lasts until the process ends, so a test
// sets it in a Child.
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace collectives::testing {

// A test that cannot run with a sanitizer skips itself: if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors".
// Sanitizers map terabytes, and end a process that asks for too much. The thread sanitizer also delays signals.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif

/// Returns the number of lines of /proc/self/maps that contain `text`.
inline int mappings_of(std::string_view text) {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find(text) != line.npos ? 1 : 0;
  return count;
}

/// Returns a value of /proc/self/status in bytes. `name` is that of a line, such as "RssShmem" or "VmSize".
inline std::size_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) << 10;
  throw std::runtime_error("/proc/self/status has no " + name);
}

/// Returns the open descriptors of this process whose file names contain `text`.
inline std::vector<int> descriptors_of(std::string_view text) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find(text) != target.npos) found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

/// Captures the output of this process on stderr from construction on.
class StderrCapture {
 public:
  StderrCapture() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe");
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    fd_ = ends[0];
  }
  std::string text() const {
    std::string captured;
    char part[4096];
    for (ssize_t bytes = 0; (bytes = ::read(fd_, part, sizeof part)) > 0;)
      captured.append(part, static_cast<std::size_t>(bytes));
    return captured;
  }

 private:
  int fd_;
};

inline void set_limit(__rlimit_resource_t which, std::size_t limit) {
  const rlimit wanted{limit, limit};
  if (::setrlimit(which, &wanted) != 0) throw std::runtime_error("setrlimit");
}

/// A system call that refuse_calls() makes fail with `error`. If `value` is not negative, only calls fail in which
/// argument number `argument` has this value.
struct Refusal {
  std::uint32_t call;
  int error;
  int argument = -1;
  std::uint32_t value = 0;
};

inline void refuse_calls(const std::vector<Refusal>& refusals) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  const auto fails = [](int error) -> std::uint32_t { return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error); };
  for (const Refusal& refusal : refusals) {
    if (refusal.argument < 0) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.call, 0, 1));
      program.push_back(BPF_STMT(BPF_RET | BPF_K, fails(refusal.error)));
      continue;
    }
    const auto at = static_cast<std::uint32_t>(offsetof(seccomp_data, args)) +
                    8 * static_cast<std::uint32_t>(refusal.argument);  // the low word, on a little-endian machine
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.call, 0, 4));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.value, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, fails(refusal.error)));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    throw std::runtime_error("seccomp");
}

}  // namespace collectives::testing
