// listed_parts(): converts the counts and displacements of a v-form call, such as all_gather_v(), to Parts. A part is
// the range of the vector that belongs to one rank.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/types.hpp"
#include "steps/parts.hpp"

namespace collectives {

/// Returns the parts that `layout` lists. The lengths in `layout` are numbers of elements of the data type. An element
/// of the op consists of `each` elements of the data type. The lengths in the result are numbers of elements of the op.
/// Stores where the parts begin and end in `offsets`, which must outlive the result.
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
