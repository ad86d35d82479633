// Files of the tests that run benchmark programs: scratch files, and reports in JSON lines.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/json.hpp"

namespace collectives::testing {

/// A path that no other test uses. The destructor removes the file there.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& suffix)
      : path_((std::filesystem::temp_directory_path() / ("bench_program_test_" + std::to_string(getpid()) + suffix))) {}
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::vector<nlohmann::json> read_json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line));
  return lines;
}

}  // namespace collectives::testing
