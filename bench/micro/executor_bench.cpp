// Benchmark of the executor, the part of the library that performs the Steps of a plan. A plan is the algorithm of a
// call, and a Step is one action of a rank, such as a send. An all-reduce of two ranks is timed. One thread progresses
// both ranks, so no rank ever waits. The times therefore contain only the work of the executor, copies and arithmetic,
// but no traffic between cores.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "execution/executor.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/staged.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {
namespace {

constexpr int kRanks = 2;

/// All objects that one rank needs for an all-reduce.
struct Party {
  Party(const Topology& topology, Rank self, std::unique_ptr<Arena> place)
      : view(topology, self),
        arena(std::move(place)),
        transport(*arena, "local"),
        peer_memory(*arena, true, false),
        executor(view, routes(),
                 {std::make_unique<HostCollective>(SubgroupMemory(*arena), tuning, peer_memory, false)}) {}

  std::vector<Executor::Route> routes() {
    std::vector<Executor::Route> to(kRanks);
    for (Rank peer = 0; peer < kRanks; ++peer) to[static_cast<std::size_t>(peer)] = {&transport, peer};
    return to;
  }

  RankView view;
  std::unique_ptr<Arena> arena;
  SharedMemoryTransport transport;
  TuningParameters tuning;
  PeerMemory peer_memory;
  Executor executor;
  std::vector<float> input, output;
};

void all_reduce(benchmark::State& state, std::string_view backend) {
  const auto topology = Topology::regular(kRanks, kRanks);
  const TuningParameters tuning;
  Request request;
  request.count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  request.backend = backend;
  const Plan plan = choose_plan(request, topology, tuning);

  const ArenaShape shape{.ranks = kRanks,
                         .inline_bytes = tuning.inline_bytes,
                         .chunk_bytes = Staged::longest_chunk(kRanks, tuning),
                         .frame_bytes = tuning.frame_bytes};
  auto first = Arena::create(shape);
  auto second = Arena::join(first->handle(), shape, 1);
  std::vector<std::unique_ptr<Party>> parties;
  parties.push_back(std::make_unique<Party>(topology, 0, std::move(first)));
  parties.push_back(std::make_unique<Party>(topology, 1, std::move(second)));

  const bool by_part = plan.algorithm->by_part({request.collective, plan.partial_sums}, topology);
  std::vector<Job> jobs;
  for (const auto& party : parties) {
    party->input.assign(request.count, 1.0F);
    party->output.resize(request.count);
    Job job;
    job.plan = &plan;
    job.args.collective = request.collective;
    job.args.parts = Parts::equal({0, request.count}, by_part ? kRanks : 1);
    job.args.partial_sums = plan.partial_sums;
    job.input = reinterpret_cast<const std::byte*>(party->input.data());
    job.output = reinterpret_cast<std::byte*>(party->output.data());
    jobs.push_back(job);
  }

  std::uint64_t tag = 0;
  for (auto _ : state) {
    ++tag;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      jobs[rank].tag = tag;
      parties[rank]->executor.start(jobs[rank]);
    }
    bool done[kRanks] = {};
    while (!done[0] || !done[1]) {
      for (std::size_t rank = 0; rank < kRanks; ++rank) done[rank] = done[rank] || parties[rank]->executor.progress();
    }
  }
  if (request.count > 0 && parties[0]->output.back() != kRanks) state.SkipWithError("wrong sum");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes")->Arg(8)->Arg(1 << 10)->Arg(32 << 10)->Arg(1 << 20)->Arg(16 << 20);
}
BENCHMARK_CAPTURE(all_reduce, ring, "ring")->Apply(sizes);
BENCHMARK_CAPTURE(all_reduce, hierarchical, "hierarchical")->Apply(sizes);
BENCHMARK_CAPTURE(all_reduce, reduce_to_one_direct, "reduce_to_one_direct")->Apply(sizes);

}  // namespace
}  // namespace collectives
