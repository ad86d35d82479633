// The repository that the house tests check: its root, its files, and the folder of these tests. House tests check the
// source text of the project: layers, names, sizes and prose.
#pragma once

#include <filesystem>
#include <string_view>

#include "packaging/house/source_tree.hpp"

// Path, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kSourceDirectory[];

namespace collectives::house {

inline const std::filesystem::path kRoot = std::string_view(kSourceDirectory);
inline const std::filesystem::path kHouse = kRoot / "tests/packaging/house";

/// Returns the files of the repository, which are read at the first call.
inline const SourceTree& the_tree() {
  static const SourceTree tree = read_source_tree(kRoot);
  return tree;
}

}  // namespace collectives::house
