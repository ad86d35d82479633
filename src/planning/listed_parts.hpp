// listed_parts(): returns the parts of a vector whose lengths a call lists.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/types.hpp"
#include "steps/parts.hpp"

namespace collectives {

/// Returns the parts that `layout` lists, in elements of the op, each of which has `each` elements of the type. Stores
/// the ends of the parts in `offsets`, which must outlive the result.
inline Parts listed_parts(const PartLayout& layout, std::size_t each, std::vector<std::size_t>& offsets) {
  const std::size_t ranks = layout.counts.size();
  if (layout.displacements.empty()) {
    offsets.assign(ranks + 1, 0);
    for (std::size_t r = 0; r < ranks; ++r) offsets[r + 1] = offsets[r] + layout.counts[r] / each;
    return Parts::listed(offsets.data(), static_cast<int>(ranks));
  }
  offsets.resize(2 * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = layout.displacements[r] / each;
    offsets[ranks + r] = offsets[r] + layout.counts[r] / each;
  }
  return Parts::displaced(offsets.data(), offsets.data() + ranks, static_cast<int>(ranks));
}

}  // namespace collectives
