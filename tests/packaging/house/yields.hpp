// Rule on yields: every loop that yields the core bounds the time for which it does.
//
// Endless yields may keep the core from other programs (src/base/wait.hpp). The classes of src/base/ that wait bound
// their yields. No other source of the library and its programs yields by itself.
#pragma once

#include <vector>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {

/// Returns the lines of src/, tools/, bench/ and python_free_examples/ that yield the core or spin by an instruction of
/// the processor, outside the classes that wait. Comments and strings do not count.
std::vector<Finding> raw_yields(const SourceTree& tree);

}  // namespace collectives::house
