// Benchmark of the loops that reduce vectors, compared with memcpy, in bytes per second. The bytes of all sources that
// are read and all results that are written count. A loop that only memory limits is thus as fast as memcpy. Normal
// stores also read the memory that they overwrite, but these bytes do not count. Non-temporal stores do not read that
// memory.
//
// The name of a result is: op/type/number of sources/bytes of each source. A loop with "to_all" in its name writes the
// result to every source.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reduction/reduction.hpp"

namespace collectives {
namespace {

using Memory = std::vector<std::byte>;

/// Byte that fills the buffers. In each type, elements of this byte are ordinary numbers, no NaN or denormals.
constexpr std::byte kFilling{0x3c};

void set_bytes(benchmark::State& state, std::int64_t vectors, std::int64_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * vectors * bytes);
}

void plain_memcpy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Memory from(bytes, kFilling);
  Memory to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2, state.range(0));
}

void copy_to(benchmark::State& state, Stores stores) {
  const auto bytes = static_cast<std::size_t>(state.range(1));
  const Memory from(bytes, kFilling);
  std::vector<Memory> to(static_cast<std::size_t>(state.range(0)), Memory(bytes));
  std::vector<std::byte*> outs;
  for (auto& out : to) outs.push_back(out.data());
  for (auto _ : state) {
    copy(outs, from.data(), bytes, stores);
    if (stores == Stores::streaming) fence_streams();
    benchmark::ClobberMemory();
  }
  set_bytes(state, 1 + state.range(0), state.range(1));
}

void reduce(benchmark::State& state, ReduceOp op, DataType type) {
  const auto ranks = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  const std::vector<Memory> inputs(ranks, Memory(bytes, kFilling));
  Memory output(bytes);
  std::vector<Source> sources;
  for (const auto& input : inputs) sources.push_back({input.data(), true});
  for (auto _ : state) {
    fold(op, type, sources, output.data(), bytes / size_of(type), static_cast<int>(ranks));
    benchmark::ClobberMemory();
  }
  set_bytes(state, state.range(0) + 1, state.range(1));
}

/// Times a reduction to all sources. The op is max and all elements are equal, so the sources never change.
void reduce_to_all(benchmark::State& state, Stores stores) {
  const auto ranks = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  std::vector<Memory> vectors(ranks, Memory(bytes, kFilling));
  std::vector<Source> sources;
  std::vector<std::byte*> outs;
  for (auto& vector : vectors) {
    sources.push_back({vector.data(), true});
    outs.push_back(vector.data());
  }
  for (auto _ : state) {
    fold(ReduceOp::max, DataType::i32, sources, outs, bytes / 4, static_cast<int>(ranks), stores);
    if (stores == Stores::streaming) fence_streams();
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * state.range(0), state.range(1));
}

constexpr std::int64_t kInCache = 64 << 10, kInMemory = 64 << 20;

[[maybe_unused]] const bool registered = [] {
  benchmark::RegisterBenchmark("memcpy", plain_memcpy)->Arg(kInCache)->Arg(kInMemory);
  for (const Stores stores : {Stores::cached, Stores::streaming}) {
    const std::string name = stores == Stores::cached ? "cached" : "streaming";
    auto* const copies = benchmark::RegisterBenchmark(("copy/" + name).c_str(), copy_to, stores);
    auto* const to_all = benchmark::RegisterBenchmark(("to_all/" + name).c_str(), reduce_to_all, stores);
    for (const std::int64_t ranks : {1, 2, 4}) {
      copies->Args({ranks, kInMemory});
      to_all->Args({ranks, kInMemory});
    }
  }
  for (const DataType type : kDataTypes) {
    for (const ReduceOp& op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::max, ReduceOp::pre_scaled_sum(0.5),
          ReduceOp::bitwise_or, ReduceOp::logical_or, ReduceOp::max_loc}) {
      if (!supports(type, op)) continue;
      const std::string name = std::string(to_string(op.kind())) + "/" + std::string(to_string(type));
      auto* const kernel = benchmark::RegisterBenchmark(name.c_str(), reduce, op, type);
      for (const std::int64_t bytes : {8, 56}) kernel->Args({2, bytes});
      for (const std::int64_t ranks : {2, 4, 8}) kernel->Args({ranks, kInCache});
      kernel->Args({2, kInMemory});
    }
  }
  return true;
}();

}  // namespace
}  // namespace collectives
