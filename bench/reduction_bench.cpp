// The reduction loops next to memcpy. Bytes per second count what is moved: every source read, the result written; for
// memcpy one source. So a loop that keeps up with memory shows memcpy's number.
//
// Arguments: sources, bytes of each.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reduction.hpp"

namespace collectives {
namespace {

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> from(bytes, std::byte{0x3c});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0) * 2);
}

void reduce(benchmark::State& state, ReduceOp op, DataType type) {
  const auto ranks = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  // 0x3c in every byte is an ordinary number of each type.
  const std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(bytes, std::byte{0x3c}));
  std::vector<std::byte> output(bytes);
  std::vector<Source> sources;
  for (const auto& input : inputs) sources.push_back({input.data(), true});
  for (auto _ : state) {
    fold(op, type, sources, output.data(), bytes / size_of(type), static_cast<int>(ranks));
    benchmark::DoNotOptimize(output.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(1) * (state.range(0) + 1));
}

constexpr std::int64_t kInCache = 64 << 10, kInMemory = 64 << 20;

[[maybe_unused]] const bool registered = [] {
  benchmark::RegisterBenchmark("memcpy", copy)->Arg(kInCache)->Arg(kInMemory);
  for (const DataType type : kDataTypes) {
    for (const ReduceOp& op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::max, ReduceOp::pre_scaled_sum(0.5)}) {
      if (!supports(type, op)) continue;
      const std::string name = std::string(to_string(op.kind())) + "/" + std::string(to_string(type));
      auto* const kernel = benchmark::RegisterBenchmark(name.c_str(), reduce, op, type);
      for (const std::int64_t ranks : {2, 4, 8}) kernel->Args({ranks, kInCache});
      kernel->Args({2, kInMemory});
    }
  }
  return true;
}();

}  // namespace
}  // namespace collectives
