// Assigns the images of an epoch to steps and ranks. An epoch is one pass over all images. A global batch holds the
// images that all ranks process together in one step.
//
// In each epoch, the images have a new random order, which depends only on the seed and the epoch. Which images of this
// order form a global batch does not depend on the number of ranks. Runs with different numbers of ranks therefore use
// the same images in the same steps. A batch is divided into one part (shard) per rank. The lengths of the parts differ
// by at most one. The last batch of an epoch may be short, so some ranks may get no image of it.
//
// A step may consist of several batches. The last step of an epoch may have fewer batches than the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mnist {

/// Returns the order of the images in an epoch. Every image appears once.
std::vector<std::uint32_t> epoch_order(std::size_t images, std::uint64_t seed, std::size_t epoch);

/// Positions [begin, end) in the order of the images.
struct Shard {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// Returns the part of `whole` that belongs to rank `rank` of `ranks` ranks. The parts do not overlap, and together
/// they cover `whole`.
Shard shard_of(Shard whole, int rank, int ranks);

/// Returns the number of steps of an epoch. The last step may have fewer images.
inline std::size_t steps_per_epoch(std::size_t images, std::size_t batch) { return (images + batch - 1) / batch; }

/// Returns the positions of global batch `step`.
Shard batch_of(std::size_t step, std::size_t batch, std::size_t images);

}  // namespace mnist
