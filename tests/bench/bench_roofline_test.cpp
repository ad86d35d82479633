// Tests of the roofline, the time that memory bandwidth alone would need for a collective. The benchmark measures it by
// moving the bytes that the collective must move. The tests check that exactly these bytes arrive in all ranks' memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "collectives_bench/buffers.hpp"
#include "collectives_bench/roofline.hpp"
#include "support/ranks.hpp"

namespace collectives::bench {
namespace {

constexpr std::size_t kWordsInLine = kLineBytes / sizeof(std::uint64_t);

std::uint64_t value(Rank rank, std::size_t i) { return static_cast<std::uint64_t>(rank + 1) * 1000 + i; }

TEST(SumLines, AddsEverySourceIntoEveryDestinationAndNothingBeside) {
  for (const Stores stores : {Stores::plain, Stores::non_temporal}) {
    for (const std::size_t lines : {0UL, 1UL, 3UL, 4UL, 21UL}) {
      struct alignas(kLineBytes) Vector {
        std::uint64_t words[23 * kWordsInLine];
      };
      std::vector<Vector> from(3), to(2);
      for (Rank r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < 23 * kWordsInLine; ++i) from[static_cast<std::size_t>(r)].words[i] = value(r, i);
      }
      std::vector<const std::byte*> sources;
      std::vector<std::byte*> destinations;
      for (const Vector& vector : from) sources.push_back(reinterpret_cast<const std::byte*>(&vector));
      for (Vector& vector : to) destinations.push_back(reinterpret_cast<std::byte*>(&vector));
      sum_lines(sources, destinations, kLineBytes, lines * kLineBytes, stores);
      for (const Vector& vector : to) {
        for (std::size_t i = 0; i < 23 * kWordsInLine; ++i) {
          const bool inside = i >= kWordsInLine && i < (lines + 1) * kWordsInLine;
          ASSERT_EQ(vector.words[i], inside ? value(0, i) + value(1, i) + value(2, i) : 0)
              << lines << " lines, word " << i;
        }
      }
    }
  }
}

/// Returns word `i` of the result of `rank`. `words` is the number of words of a rank's part, or of the whole vector.
std::uint64_t expected(const Case& c, Rank rank, std::size_t i, std::size_t words, int ranks, Rank root) {
  const auto sum = [&](std::size_t at) {
    std::uint64_t total = 0;
    for (Rank r = 0; r < ranks; ++r) total += value(r, at);
    return total;
  };
  switch (c.operation) {
    case Operation::reduce_scatter: return sum(static_cast<std::size_t>(rank) * words + i);
    case Operation::all_gather:
      // In place, the input of a rank is its part of the vector, so its values are those at that offset.
      return c.in_place ? value(static_cast<Rank>(i / words), i) : value(static_cast<Rank>(i / words), i % words);
    case Operation::broadcast: return value(root, i);
    case Operation::all_reduce:
    case Operation::reduce:
    default: break;
  }
  return sum(i);
}

TEST(Roofline, LeavesEveryRankItsResult) {
  constexpr int kRanks = 3;
  constexpr std::size_t kLines = 7, kWords = kLines * kWordsInLine;
  Settings settings;
  settings.root = 1;
  std::vector<Case> cases;
  for (const Operation operation : kOperations) {
    if (operation == Operation::barrier || !has_roofline(operation)) continue;
    for (const bool in_place : {false, true}) {
      cases.push_back({operation, "auto", DataType::u64, ReduceOp::Kind::sum, kWords, in_place});
    }
  }
  testing::run_ranks(kRanks, [&](Bootstrap& bootstrap) {
    Communicator comm(bootstrap);
    Roofline roofline(comm, bootstrap, settings, cases);
    for (const Case& c : cases) {
      for (const Stores stores : {Stores::plain, Stores::non_temporal}) {
        roofline.use(c);
        auto* const mine = reinterpret_cast<std::uint64_t*>(roofline.memory(comm.rank()));
        const std::size_t input =
            c.in_place || c.operation == Operation::reduce_scatter ? whole_count(c, kRanks) : kWords;
        for (std::size_t i = 0; i < input; ++i) mine[i] = value(comm.rank(), i);
        comm.barrier();
        roofline.move(stores);
        const bool result_here = c.operation != Operation::reduce || comm.rank() == settings.root;
        const std::size_t own = static_cast<std::size_t>(comm.rank()) * kWords;
        const std::uint64_t* const result =
            !c.in_place ? mine + input : mine + (c.operation == Operation::reduce_scatter ? own : 0);
        const std::size_t words = c.operation == Operation::all_gather ? kWords * kRanks : kWords;
        for (std::size_t i = 0; result_here && i < words; ++i) {
          ASSERT_EQ(result[i], expected(c, comm.rank(), i, kWords, kRanks, settings.root))
              << to_string(c.operation) << (c.in_place ? " in place" : "") << ", rank " << comm.rank() << ", word "
              << i;
        }
        comm.barrier();
      }
    }
  });
}

TEST(Roofline, VectorsInTurnStayInTheirMemory) {
  Settings settings;
  settings.rotate = 10'000;
  const std::vector<Case> cases{{Operation::all_reduce, "auto", DataType::f32, ReduceOp::Kind::sum, 100, false},
                                {Operation::all_gather, "auto", DataType::f32, ReduceOp::Kind::sum, 3000, true}};
  testing::run_ranks(2, [&](Bootstrap& bootstrap) {
    Communicator comm(bootstrap);
    Roofline roofline(comm, bootstrap, settings, cases);
    for (const Case& c : cases) {
      roofline.use(c);
      for (int i = 0; i < 100; ++i) roofline.move(Stores::plain);
    }
  });
}

}  // namespace
}  // namespace collectives::bench
