// One rank of a program that trace_test runs. It makes calls of every kind, on tensors with difficult names.
#include <cstdio>
#include <vector>

#include "collectives/collectives.hpp"

int main() {
  using namespace collectives;
  try {
    Communicator comm = Communicator::from_environment();
    std::vector<float> data(20'000, 1.f), more(20'000, 1.f);
    comm.barrier();
    for (int lap = 0; lap < 1000; ++lap) comm.all_reduce(std::span(data).first(4));  // more than the recorder keeps
    TopK top_k({.k = 10});
    comm.all_reduce(data, ReduceOp::sum, {.name = "a \"name\"\\ \n \xc3", .compressor = &top_k, .force = true});
    comm.all_reduce(data, ReduceOp::average, {.wire = DataType::bf16, .force = true});
    comm.all_reduce(data, ReduceOp::sum, {.backend = "ring"});
    Work first = comm.all_reduce_async(data, data),
         second = comm.all_reduce_async(more, more, ReduceOp::sum, {.name = "fc1"});
    second.wait();
    first.wait();
    auto half = comm.split(comm.rank() % 2);
    half->barrier();
    return 0;
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
