// Ranks that disagree get an error that says who passed what, not a hang and not a wrong number.   09_errors
//
// Rank 2 makes a mistake: its vector is one element short. Ranks are threads here; processes get the same.
#include <atomic>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

int main() {
  constexpr int kRanks = 4;
  const auto bootstraps = collectives::bootstrap_threads(kRanks);
  std::atomic<int> told = 0;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        collectives::Communicator comm(*bootstraps[static_cast<std::size_t>(rank)]);
        std::vector<float> data(rank == 2 ? 4095 : 4096, 1.0F);
        try {
          comm.all_reduce(data);
          comm.barrier();  // who got through before the mistake was seen learns of it at the next call
        } catch (const collectives::Error& error) {
          std::printf("rank %d was told (%s): %s\n", rank, std::string(to_string(error.code())).c_str(), error.what());
          if (error.code() == collectives::Errc::mismatch) ++told;
        }
      });
    }
  }
  return told == kRanks ? 0 : 1;
}
