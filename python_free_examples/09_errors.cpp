// Shows the error of a mismatch: ranks call a collective with different arguments. The error names the ranks and their
// arguments. The call neither hangs nor returns a wrong result. 09_errors
//
// Here, the vector of rank 2 is one element shorter than those of the other ranks. The ranks are threads. Ranks that
// are processes get the same error.
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
          // a rank may complete its all-reduce before the mismatch is found; it then gets the error here
          comm.barrier();
        } catch (const collectives::Error& error) {
          std::printf("rank %d was told (%s): %s\n", rank, std::string(to_string(error.code())).c_str(), error.what());
          if (error.code() == collectives::Errc::mismatch) ++told;
        }
      });
    }
  }
  return told == kRanks ? 0 : 1;
}
