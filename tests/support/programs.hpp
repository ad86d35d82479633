// Helpers for tests that run programs: a command, its output, and the processes that it leaves behind.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace collectives::testing {

struct Outcome {
  int status = 0;   ///< status of the shell: 0 if the command succeeded
  std::string out;  ///< stdout and stderr
};

/// Runs a command. After each line of output, calls `heard` with all output so far.
Outcome run_command(const std::string& command, const std::function<void(const std::string&)>& heard = {});

/// Returns the number of processes that this test has started and that run the program at `path`.
int processes_of(std::string_view path);

/// Sends SIGKILL to the processes that this test has started, that run the program at `path`, and that are stopped.
void kill_stopped(std::string_view path);

/// Returns the number of matches of the regular expression `pattern` in `text`, which do not overlap.
int occurrences(std::string_view text, const std::string& pattern);

}  // namespace collectives::testing
