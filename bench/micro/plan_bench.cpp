// Benchmark of planning. A plan is the algorithm and protocol that the library chooses for a call. The library chooses
// a plan at the first call with new arguments, and keeps it for later calls. The benchmark shows how the time of this
// choice grows with the number of ranks. It also times explain(), which describes the choice.
#include <benchmark/benchmark.h>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace collectives {
namespace {

Request all_reduce_of(std::size_t bytes) {
  Request request;
  request.count = bytes / size_of(request.type);
  return request;
}

/// Times the choice of a plan. Arguments: ranks, ranks per host, bytes.
void choose(benchmark::State& state) {
  const auto topology = Topology::regular(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const Request request = all_reduce_of(static_cast<std::size_t>(state.range(2)));
  const Tuning tuning;
  for (auto _ : state) benchmark::DoNotOptimize(choose_plan(request, topology, tuning));
}
BENCHMARK(choose)
    ->ArgNames({"ranks", "per_host", "bytes"})
    ->Args({2, 2, 8})
    ->Args({8, 8, 8})
    ->Args({8, 8, 64 << 20})
    ->Args({64, 8, 8})
    ->Args({64, 8, 64 << 20})
    ->Args({1024, 8, 64 << 20});

/// Times the explanation of a plan. Argument: ranks of one host.
void explain_choice(benchmark::State& state) {
  const auto topology = Topology::regular(static_cast<int>(state.range(0)), static_cast<int>(state.range(0)));
  const Request request = all_reduce_of(1 << 20);
  const Plan plan = choose_plan(request, topology, {});
  for (auto _ : state) benchmark::DoNotOptimize(explain(plan, request, topology));
}
BENCHMARK(explain_choice)->ArgName("ranks")->Arg(2)->Arg(64);

}  // namespace
}  // namespace collectives
