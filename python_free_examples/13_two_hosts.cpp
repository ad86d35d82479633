// Runs ranks on two hosts. The program needs no code for that: ranks of one host exchange data through shared memory,
// and ranks of different hosts over the network.
//
//   collectives_run -n 4 13_two_hosts
//
// This example simulates two hosts on one machine: ranks with different COLLECTIVES_HOST_ID count as ranks of different
// hosts. On two machines, leave this variable out.
#include <collectives/collectives.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main() {
  const char* const rank = std::getenv("RANK");  // set by collectives_run and torchrun
  ::setenv("COLLECTIVES_HOST_ID", rank != nullptr && std::atoi(rank) % 2 == 1 ? "odd" : "even", 0);
  collectives::Communicator comm = collectives::Communicator::from_environment();

  std::vector<float> gradient(100'000, static_cast<float>(comm.rank()));
  comm.all_reduce(gradient, collectives::ReduceOp::average);
  for (const float value : gradient) {
    if (value != static_cast<float>(comm.size() - 1) / 2) return 1;
  }

  if (comm.rank() == 0) {
    std::printf("%s over %s\n", to_string(comm.topology()).c_str(), std::string(comm.transport()).c_str());
    std::printf("%s", comm.explain(collectives::Collective::all_reduce, gradient.size(), collectives::DataType::f32,
                                   collectives::ReduceOp::average)
                          .c_str());
  }
  std::printf("rank %d sent %llu bytes, %llu of them to the other host\n", comm.rank(),
              static_cast<unsigned long long>(comm.bytes_sent()),
              static_cast<unsigned long long>(comm.bytes_sent_to_other_hosts()));
}
