// Assigns the images of an epoch to steps and ranks. An epoch is one pass over all images. A global batch holds the
// images that all ranks process together in one step.
//
// The order of an epoch depends only on the seed and the epoch. The range of a global batch in that order does not
// depend on the number of ranks. Any number of ranks therefore sees the same data in the same steps. A batch is cut
// into one part (shard) per rank. The lengths of the parts differ by at most one. The last batch may be short, and some
// ranks may get no image of it.
//
// A step may take several batches. The last step of an epoch may have fewer batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mnist {

/// Returns the order of the images in an epoch. Every image appears once.
std::vector<std::uint32_t> epoch_order(std::size_t images, std::uint64_t seed, std::size_t epoch);

/// A half-open range of positions.
struct Shard {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// Returns part `rank` of `ranks` of [begin, end). The parts are disjoint, in order, and cover the range.
Shard shard_of(Shard whole, int rank, int ranks);

/// Returns the number of steps of an epoch. The last step may have fewer images.
inline std::size_t steps_per_epoch(std::size_t images, std::size_t batch) { return (images + batch - 1) / batch; }

/// Returns the positions of global batch `step`.
Shard batch_of(std::size_t step, std::size_t batch, std::size_t images);

}  // namespace mnist
