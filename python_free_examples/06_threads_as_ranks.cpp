// Runs ranks as threads of one process, without a launcher or files, for example in a test. 06_threads_as_ranks
#include <atomic>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

int main() {
  constexpr int kRanks = 4;
  constexpr std::size_t kPart = 1000;
  const auto bootstraps = collectives::bootstrap_threads(kRanks);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        collectives::Communicator comm(*bootstraps[static_cast<std::size_t>(rank)]);
        // Every rank contributes 0, 1, 2, ... and receives its part of the sum.
        std::vector<double> mine(kRanks * kPart), part(kPart);
        std::iota(mine.begin(), mine.end(), 0.0);
        comm.reduce_scatter(mine, part, collectives::ReduceOp::sum);
        for (std::size_t i = 0; i < kPart; ++i) {
          if (part[i] != kRanks * static_cast<double>(static_cast<std::size_t>(rank) * kPart + i)) return;
        }
        ++right;
      });
    }
  }
  std::printf("%d of %d threads hold their part of the sum\n", right.load(), kRanks);
  return right == kRanks ? 0 : 1;
}
