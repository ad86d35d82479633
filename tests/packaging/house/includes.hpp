// Rule on includes: a source includes the standard headers that it uses.
//
// Builds of developers precompile some headers, and sanitizer builds compile the sources of a folder as one. A source
// that lacks an include therefore compiles there. Builds of users compile each source alone.
#pragma once

#include <string>
#include <vector>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {

/// Returns the first use in src/ and include/ of each header that its file does not include. The file may include the
/// header through a header of the project. Covers the headers that src/CMakeLists.txt precompiles.
std::vector<Finding> missing_includes(const SourceTree& tree);

/// Returns the standard headers that the rule covers, as include lines name them: "vector", "fmt/format.h".
std::vector<std::string> covered_headers();

}  // namespace collectives::house
