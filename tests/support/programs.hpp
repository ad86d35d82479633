// Helpers for tests that run programs: a command, its output, and the processes that it leaves behind.
#pragma once

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <string_view>

namespace collectives::testing {

struct Outcome {
  int status = 0;   ///< status of the shell: 0 if the command succeeded
  std::string out;  ///< stdout and stderr
};

/// Runs a command. After each line of output, calls `heard` with all output so far.
inline Outcome run_command(const std::string& command, const std::function<void(const std::string&)>& heard = {}) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    outcome.out += buffer;
    if (heard) heard(outcome.out);
  }
  outcome.status = ::pclose(pipe);
  return outcome;
}

/// Returns the number of processes that run the program at `path`.
inline int processes_of(std::string_view path) {
  int count = 0;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    char target[4096];
    const ssize_t length = ::readlink((std::string("/proc/") + entry->d_name + "/exe").c_str(), target, sizeof target);
    if (length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == path) ++count;
  }
  ::closedir(proc);
  return count;
}

inline int occurrences(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

}  // namespace collectives::testing
