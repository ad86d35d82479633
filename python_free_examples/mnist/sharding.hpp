// Assignment of images to ranks and steps.
//
// The order of an epoch depends only on the seed and the epoch. A global batch is the same range of that order for any
// number of ranks, so 2 ranks and 1 rank see the same data in the same steps. The ranks cut each batch into parts whose
// lengths differ by at most one. The last batch may be short, and some ranks may get no image of it.
//
// A step of several batches is the range of these batches. The last step may have fewer batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mnist {

/// Returns every image once.
std::vector<std::uint32_t> epoch_order(std::size_t images, std::uint64_t seed, std::size_t epoch);

/// A half-open range of positions.
struct Shard {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// Returns part `rank` of `ranks` of [begin, end). The parts are disjoint, in order, and cover the range.
Shard shard_of(Shard whole, int rank, int ranks);

/// Returns the steps of an epoch. The last one may be short.
inline std::size_t steps_per_epoch(std::size_t images, std::size_t batch) { return (images + batch - 1) / batch; }

/// Returns the positions of global batch `step`.
Shard batch_of(std::size_t step, std::size_t batch, std::size_t images);

}  // namespace mnist
