// Implementation of the helpers for tests that run programs.
#include "support/programs.hpp"

#include <dirent.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/pattern.hpp"

namespace collectives::testing {

Outcome run_command(const std::string& command, const std::function<void(const std::string&)>& heard) {
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

namespace {

/// Entry of the environment of all processes that this test starts, also through launchers. Other tests may run the
/// same program at the same time.
const std::string mark_of_test = [] {
  const std::string id = std::to_string(::getpid());
  ::setenv("STARTED_BY_TEST", id.c_str(), 1);
  return "STARTED_BY_TEST=" + id;
}();

bool is_of_this_test(const std::string& process) {
  std::ifstream file("/proc/" + process + "/environ");
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry == mark_of_test) return true;
  return false;
}

/// Returns the ids of the processes of this test that run the program at `path`, as text.
std::vector<std::string> ids_of(std::string_view path) {
  std::vector<std::string> ids;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    char target[4096];
    const ssize_t length = ::readlink((std::string("/proc/") + entry->d_name + "/exe").c_str(), target, sizeof target);
    if (length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == path &&
        is_of_this_test(entry->d_name))
      ids.push_back(entry->d_name);
  }
  ::closedir(proc);
  return ids;
}

}  // namespace

int processes_of(std::string_view path) { return static_cast<int>(ids_of(path).size()); }

void kill_stopped(std::string_view path) {
  for (const std::string& id : ids_of(path)) {
    std::ifstream file("/proc/" + id + "/stat");
    std::string text;
    std::getline(file, text);
    if (text.find(") T ") != text.npos) ::kill(std::atoi(id.c_str()), SIGKILL);
  }
}

int occurrences(std::string_view text, const std::string& pattern) {
  return static_cast<int>(Pattern(pattern).all_in(text).size());
}

}  // namespace collectives::testing
