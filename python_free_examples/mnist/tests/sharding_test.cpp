// Tests of the division of work. In an epoch, every image is assigned to one rank exactly once, for any numbers of
// ranks and images. A bucket is the gradients that one all-reduce sums. Together, the buckets cover every gradient
// exactly once.
#include "sharding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "buckets.hpp"

namespace mnist {
namespace {

TEST(Sharding, EveryImageIsTrainedOnOnceByOneRank) {
  for (const std::size_t images : {1u, 2u, 63u, 64u, 65u, 1000u, 1013u})
    for (const std::size_t batch : {1u, 5u, 64u, 2000u})
      for (int ranks = 1; ranks <= 7; ++ranks) {
        const std::vector<std::uint32_t> order = epoch_order(images, 9, 2);
        std::vector<int> times(images);
        for (std::size_t step = 0; step < steps_per_epoch(images, batch); ++step)
          for (int rank = 0; rank < ranks; ++rank) {
            const Shard mine = shard_of(batch_of(step, batch, images), rank, ranks);
            for (std::size_t at = mine.begin; at < mine.end; ++at) ++times[order[at]];
          }
        EXPECT_EQ(std::ranges::count(times, 1), static_cast<std::ptrdiff_t>(images))
            << images << " " << batch << " " << ranks;
      }
}

TEST(Sharding, ShardsOfABatchDifferByOneImageAtMost) {
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (std::size_t count = 0; count < 40; ++count) {
      std::size_t least = count, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::size_t size = shard_of({100, 100 + count}, rank, ranks).size();
        least = std::min(least, size);
        most = std::max(most, size);
      }
      EXPECT_LE(most - least, 1u);
    }
}

TEST(Sharding, EpochsHaveOrdersOfTheirOwn) {
  EXPECT_EQ(epoch_order(100, 1, 0), epoch_order(100, 1, 0));
  EXPECT_NE(epoch_order(100, 1, 0), epoch_order(100, 1, 1));
  EXPECT_NE(epoch_order(100, 1, 0), epoch_order(100, 2, 0));
}

TEST(Buckets, SmallLayersShareOne) { EXPECT_EQ(cut_buckets({0, 10, 20}, 25, 100), (std::vector<Bucket>{{0, 25}})); }

TEST(Buckets, ALayerThatDoesNotFitOpensAnother) {
  EXPECT_EQ(cut_buckets({0, 10, 20}, 25, 16), (std::vector<Bucket>{{10, 25}, {0, 10}}));
}

TEST(Buckets, ALongLayerIsCutFromItsEndAndSharesWithNobody) {
  EXPECT_EQ(cut_buckets({0, 10, 45}, 50, 16), (std::vector<Bucket>{{45, 50}, {29, 45}, {13, 29}, {10, 13}, {0, 10}}));
}

TEST(Buckets, EveryElementIsInExactlyOneWhateverTheSize) {
  const std::vector<std::size_t> layers = {0, 3, 4, 90, 91};
  for (std::size_t elements = 1; elements < 130; ++elements) {
    std::size_t end = 120;
    for (const Bucket& bucket : cut_buckets(layers, 120, elements)) {
      EXPECT_EQ(bucket.end, end);
      EXPECT_LT(bucket.begin, bucket.end);
      EXPECT_LE(bucket.end - bucket.begin, elements);
      end = bucket.begin;
    }
    EXPECT_EQ(end, 0u);
  }
}

}  // namespace
}  // namespace mnist
