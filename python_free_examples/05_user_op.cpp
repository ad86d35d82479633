// A user-defined reduction that finds the largest value and its rank.   collectives_run -n 4 05_user_op
//
// Each element is a 64-bit word with the value in the upper 32 bits and the rank in the lower 32 bits. The larger of
// two words therefore has the larger value.
#include <collectives/collectives.hpp>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();

  const collectives::UserOp largest{"largest",
                                    [](const void* next, void* accumulated, std::size_t count, collectives::DataType) {
                                      const auto* from = static_cast<const std::uint64_t*>(next);
                                      auto* to = static_cast<std::uint64_t*>(accumulated);
                                      for (std::size_t i = 0; i < count; ++i) {
                                        if (from[i] > to[i]) to[i] = from[i];
                                      }
                                    }};

  // The value of element i is 1000 + i on rank i % size, and i on all other ranks. The result must therefore name rank
  // i % size.
  std::vector<std::uint64_t> words(12);
  const auto rank = static_cast<std::uint64_t>(comm.rank()), size = static_cast<std::uint64_t>(comm.size());
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = ((i % size == rank ? 1000 + i : i) << 32) | rank;
  comm.all_reduce(words, collectives::ReduceOp::user(largest));  // in place

  for (std::uint64_t i = 0; i < words.size(); ++i) {
    if (words[i] != (((1000 + i) << 32) | (i % size))) return 1;
  }
  if (comm.rank() == 0) {
    for (std::size_t i = 0; i < 3; ++i) {
      std::printf("element %zu: the largest is %u, on rank %u\n", i, static_cast<unsigned>(words[i] >> 32),
                  static_cast<unsigned>(words[i] & 0xffffffffU));
    }
  }
}
