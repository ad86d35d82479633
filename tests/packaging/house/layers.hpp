// The layers of src/: the folders that a folder may include, and further rules for include lines.
//
// The file layers.txt lists the folders in order. The function order_faults() checks every include line of src/ and
// tools/ against that list. The function rule_faults() checks rules that an order of folders cannot express. They limit
// includes of MPI, CUDA and UCX, and the use of the environment. Some folders may include fewer layers than those below
// them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {

struct Layer {
  std::string folder;     ///< path relative to src/, or "tools"
  std::size_t level = 0;  ///< number of its line in layers.txt, without counting comments
};

class Layers {
 public:
  /// Reads the text of layers.txt.
  explicit Layers(std::string_view list);

  const std::vector<Layer>& all() const noexcept { return layers_; }

  /// Returns the layer of a file or an include, "transport/tcp.hpp": the longest folder that the path begins with.
  /// Returns null if no layer holds it.
  const Layer* of(std::string_view path) const;

  /// Returns the folders of each level, the highest level first.
  std::vector<std::string> from_the_top() const;

 private:
  std::vector<Layer> layers_;
};

/// Returns true if files of `from` may include files of `to`.
bool may_include(const Layer& from, const Layer& to);

/// Returns the include lines of src/ and tools/ that go up or to a folder of the same level. Also returns those that
/// name no layer, and the sources that lie in no layer.
std::vector<Finding> order_faults(const SourceTree& tree, const Layers& layers);

/// Returns the lines of include/, src/ and tools/ that break one of the rules in rules.cpp.
std::vector<Finding> rule_faults(const SourceTree& tree);

/// Returns the levels that a picture shows, from top to bottom: each <text> of the SVG that names layers only.
std::vector<std::string> pictured_levels(std::string_view svg, const Layers& layers);

/// Returns what an include line names, in its quotes or brackets. Returns an empty text for any other line.
std::string included(std::string_view line);

}  // namespace collectives::house
