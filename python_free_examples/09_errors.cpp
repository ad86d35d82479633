// Ranks whose calls do not match get an error that names the ranks and their arguments. The call neither hangs nor
// returns a wrong result.   09_errors
//
// Rank 2 passes a vector that is one element short. The ranks are threads here; ranks as processes get the same error.
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
          comm.barrier();  // a rank whose all-reduce has completed gets the error here
        } catch (const collectives::Error& error) {
          std::printf("rank %d was told (%s): %s\n", rank, std::string(to_string(error.code())).c_str(), error.what());
          if (error.code() == collectives::Errc::mismatch) ++told;
        }
      });
    }
  }
  return told == kRanks ? 0 : 1;
}
