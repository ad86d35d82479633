// Who trains on which image. The order of an epoch depends on the seed and the epoch alone, and a global batch is the
// same stretch of it whatever the number of ranks, so 2 ranks and 1 see the same data in the same steps. The ranks cut
// each batch into parts whose lengths differ by one at most; the last batch may be short, and ranks may get none of it.
// A step of several batches is the stretch that they make, and the last step may have fewer of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mnist {

/// Every image once.
std::vector<std::uint32_t> epoch_order(std::size_t images, std::uint64_t seed, std::size_t epoch);

/// A half-open range of positions.
struct Shard {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// Part `rank` of `ranks` of [begin, end): the parts are disjoint, in order, and cover it.
Shard shard_of(Shard whole, int rank, int ranks);

/// Steps of an epoch: the last one may be short.
inline std::size_t steps_per_epoch(std::size_t images, std::size_t batch) { return (images + batch - 1) / batch; }

/// The positions of global batch `step`.
Shard batch_of(std::size_t step, std::size_t batch, std::size_t images);

}  // namespace mnist
