// Implementation of the assignment of images to ranks. The n images of a batch have positions from 0. Rank r of p ranks
// gets positions [n r / p, n (r + 1) / p), with both quotients rounded down.
#include "sharding.hpp"

#include <algorithm>
#include <numeric>

#include "random.hpp"

namespace mnist {

std::vector<std::uint32_t> epoch_order(std::size_t images, std::uint64_t seed, std::size_t epoch) {
  std::vector<std::uint32_t> order(images);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed, 0x6f72646572, epoch);
  shuffle(order, random);
  return order;
}

Shard shard_of(Shard whole, int rank, int ranks) {
  const auto r = static_cast<std::size_t>(rank), p = static_cast<std::size_t>(ranks);
  return {whole.begin + whole.size() * r / p, whole.begin + whole.size() * (r + 1) / p};
}

Shard batch_of(std::size_t step, std::size_t batch, std::size_t images) {
  return {std::min(step * batch, images), std::min((step + 1) * batch, images)};
}

}  // namespace mnist
