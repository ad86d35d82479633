// Checks the sizes of the project's parts: lengths of functions, files and documents, and numbers of functions and
// members of classes. A bar is the maximum size.
//
// Lengths of functions and the content of classes come from universal-ctags, which prints a line of JSON for each name.
// Each function here returns what is above its bar.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "packaging/house/not_yet.hpp"
#include "packaging/house/source_tree.hpp"

namespace collectives::house {

/// All measures that this file takes, as not_yet.txt names them.
inline const std::vector<std::string_view> kSizeMeasures = {
    "function_lines", "class_functions", "class_members", "wide_classes", "cpp_lines",
    "document_lines", "document_words",  "test_lines",    "cmake_lines",  "results_lines"};

/// A name that ctags has found.
struct Tag {
  std::string path, name, kind;
  std::string scope;  ///< qualified name of the class or namespace around it
  std::size_t line = 0;
  std::size_t end = 0;  ///< number of its last line; 0: unknown

  std::string qualified() const { return scope.empty() ? name : scope + "::" + name; }
};

/// Runs the program `ctags` in `root` over `paths`. Throws std::runtime_error if it fails.
std::vector<Tag> run_ctags(const std::string& ctags, const std::filesystem::path& root, const std::string& paths);

/// Returns the functions of src/ and tools/ above 60 lines.
std::vector<Excess> long_functions(const std::vector<Tag>& tags);

/// Returns the classes of include/, src/ and tools/ with more functions or members than they may have.
///
/// A class has 30 functions at most. Five classes may have more, if the comment at their head says "More than 30
/// functions:" with the reason. A few classes are named in sizes.cpp with bars of their own, and no reason excuses
/// them.
std::vector<Excess> wide_classes(const std::vector<Tag>& tags, const SourceTree& tree);

/// Returns the sources, tests and documents above their bars.
std::vector<Excess> long_files(const SourceTree& tree);

}  // namespace collectives::house
