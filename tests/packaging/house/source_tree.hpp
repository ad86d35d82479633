// The files of the repository, as the tests of layers, words, sizes and prose read them.
//
// A tree is a list of files in memory. A test reads the repository from disk once. It also applies its checker to small
// trees in its own source, to prove that the checker finds faults.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace collectives::house {

struct SourceFile {
  std::string path;  ///< path relative to the root of the repository, with slashes
  std::string text;
};

using SourceTree = std::vector<SourceFile>;

/// A place that breaks a rule.
struct Finding {
  std::string path;
  std::size_t line = 0;  ///< number of the line; 0: the whole file
  std::string text;
};

/// Returns the text files below the folders of the repository at `root`, and its own Markdown files, ordered by path.
/// Leaves out folders named build.
SourceTree read_source_tree(const std::filesystem::path& root);

/// Returns the content of the file at `path`. Throws std::runtime_error if it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Returns the file of `tree` at `path`, or null.
const SourceFile* find_file(const SourceTree& tree, std::string_view path);

/// Returns the lines of `text` without their ends. A last line that is empty does not count.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns `text` without the white space at both ends.
std::string_view trimmed(std::string_view text);

/// Returns true for sources and headers of C, C++ and CUDA.
bool is_code(std::string_view path);

/// Returns true if `path` lies below one of `folders`, which are written without a slash at the end.
bool is_below(std::string_view path, const std::vector<std::string_view>& folders);

/// Returns the C++ source `text` with blanks in place of comments, strings and characters. Lines keep their numbers.
std::string code_only(std::string_view text);

/// Returns one line "path:line: text" for each finding.
std::string to_text(const std::vector<Finding>& findings);

}  // namespace collectives::house
