// Benchmark on GPUs. Its first part compares the bandwidth of the library's kernels (cuda/kernels.hpp) with that of a
// copy in GPU memory. Its second part compares calls of the library that use NCCL with direct calls of NCCL. The file
// bench/results/gpu.md lists the expected results.
//
//   gpu_bench [--bytes 1073741824] [--elements 268435456] [--repeats 21]
//
// The program prints one line per result. Each result is a median. A time is measured between two CUDA events in a
// stream, one before a call and one after it. Work of the CPU therefore counts only while the GPU waits for it.
#include "gpu_bench.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/kernels.hpp"
#include "gpu_bench_arguments.hpp"

namespace collectives::gpu_bench {
namespace {

class Bench {
 public:
  explicit Bench(const Sizes& sizes) : sizes_(sizes) {}

  void run() {
    figure("copy, device to device", [&] { copy(); });
    figure("cast f32 to bf16", [&] { cast(DataType::f32, DataType::bf16); });
    figure("cast bf16 to f32", [&] { cast(DataType::bf16, DataType::f32); });
    for (std::size_t sources = 2; sources <= 8; ++sources)
      figure(fmt::format("sum of {} x f32", sources), [&] { sum(DataType::f32, sources); });
    figure("sum of 8 x bf16", [&] { sum(DataType::bf16, 8); });
    for (const double density : {0.01, 0.001})
      figure(fmt::format("top-k {}% with error feedback", 100 * density), [&] { select(density); });
    figure("cast-reduce-scale of 4 x f32, fused", [&] { fused(); });
  }

 private:
  using Action = std::function<void()>;

  void figure(std::string_view name, const Action& action) {
    name_ = name;
    try {
      action();
    } catch (const NoMemory& error) {
      fmt::print("{:<40} skipped: {}\n", name_, error.what());
    }
    std::fflush(stdout);
  }

  double time(const Action& action) { return stream_.median_time(sizes_.repeats, action); }

  void print(double seconds, std::size_t moved_bytes, std::string_view verdict) const {
    fmt::print("{:<40} {:>10.1f} us {:>8.1f} GB/s   {}\n", name_, 1e6 * seconds,
               1e-9 * static_cast<double>(moved_bytes) / seconds, verdict);
  }

  /// Times an action that reads and writes `moved_bytes` bytes together. Prints its bandwidth divided by that of a
  /// copy.
  void time_moving(std::size_t moved_bytes, const Action& action) {
    const double seconds = time(action);
    const double share = static_cast<double>(moved_bytes) / seconds / copy_bandwidth_;
    print(seconds, moved_bytes, fmt::format("{:.3f} of the copy bandwidth, to be reached 0.9", share));
  }

  void copy() {
    const Memory from = memory(sizes_.bytes), to = memory(sizes_.bytes);
    const double seconds = time([&] {
      check(cudaMemcpyAsync(to->as(), from->as(), sizes_.bytes, cudaMemcpyDeviceToDevice, stream_.get()), "copy");
    });
    copy_bandwidth_ = 2 * static_cast<double>(sizes_.bytes) / seconds;
    print(seconds, 2 * sizes_.bytes, "the copy bandwidth");
  }

  void cast(DataType from_type, DataType to_type) {
    const std::size_t count = sizes_.bytes / sizeof(float);
    const Memory from = memory(count * size_of(from_type)), to = memory(count * size_of(to_type));
    time_moving(count * (size_of(from_type) + size_of(to_type)), [&] {
      cuda::cast({from->as(), count, from_type}, {to->as(), count, to_type}, stream_.get());
    });
  }

  void sum(DataType type, std::size_t sources) {
    const std::size_t count = sizes_.bytes / size_of(type);
    std::vector<Memory> inputs;
    std::vector<Source> terms;
    for (std::size_t s = 0; s < sources; ++s) terms.push_back({inputs.emplace_back(memory(sizes_.bytes))->as(), true});
    const Memory out = memory(sizes_.bytes);
    std::byte* const outs[] = {out->as()};
    time_moving((sources + 1) * sizes_.bytes,
                [&] { cuda::fold(ReduceOp::sum, type, terms, outs, count, static_cast<int>(sources), stream_.get()); });
  }

  /// Fills `to` with random numbers whose distribution is like that of a gradient.
  void draw(float* to, std::size_t count) const {
    std::vector<float> values(count);
    std::uint64_t state = 1;
    for (float& value : values) {  // the sum of three uniform numbers is nearly normal
      float drawn = -1.5F;
      for (int i = 0; i < 3; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        drawn += static_cast<float>(state >> 40) * 0x1p-24F;
      }
      value = drawn;
    }
    check(cudaMemcpy(to, values.data(), count * sizeof(float), cudaMemcpyHostToDevice), "gradient");
  }

  void select(double density) {
    const std::size_t n = sizes_.elements;
    const auto k = static_cast<std::size_t>(density * static_cast<double>(n));
    const Memory gradient = memory(n * sizeof(float)), accumulated = memory(n * sizeof(float)),
                 indices = memory(k * sizeof(std::uint32_t)), values = memory(k * sizeof(float)),
                 scratch = memory(cuda::select_scratch_bytes(n, k));
    draw(gradient->as<float>(), n);
    const double seconds = time([&] {
      cuda::select({.gradient = gradient->as<float>(), .accumulated = accumulated->as<float>(), .n = n}, k,
                   indices->as<std::uint32_t>(), values->as<float>(), scratch->as(), stream_.get());
    });
    const std::size_t moved = 16 * n;
    print(seconds, moved,
          fmt::format("{:.3f} times the time of moving 16 bytes an element, to be reached 1.4",
                      seconds * copy_bandwidth_ / static_cast<double>(moved)));
  }

  /// Times the kernel that reduces, scales and converts in one pass, and separate kernels for these three steps.
  void fused() {
    constexpr std::size_t kSources = 4;
    const std::size_t count = sizes_.bytes / sizeof(float);
    std::vector<Memory> inputs;
    std::vector<Source> terms;
    std::vector<const std::byte*> sources;
    for (std::size_t s = 0; s < kSources; ++s) {
      sources.push_back(inputs.emplace_back(memory(sizes_.bytes))->as());
      terms.push_back({sources.back(), true});
    }
    const Memory total = memory(sizes_.bytes), wire = memory(count * sizeof(bfloat16));
    std::byte* const outs[] = {total->as()};
    const Source whole[] = {{total->as(), true}};
    const Buffer coded(wire->as(), count, DataType::bf16);
    const double one = time([&] {
      cuda::cast_reduce_scale(DataType::f32, sources, count, static_cast<float>(kSources), coded, nullptr,
                              stream_.get());
    });
    const double three = time([&] {
      cuda::fold(ReduceOp::sum, DataType::f32, terms, outs, count, 1, stream_.get());
      cuda::fold(ReduceOp::average, DataType::f32, whole, outs, count, static_cast<int>(kSources), stream_.get());
      cuda::cast({total->as(), count, DataType::f32}, coded, stream_.get());
    });
    print(one, kSources * sizes_.bytes + count * sizeof(bfloat16),
          fmt::format("{:.2f} times as fast as the three one after the other, to be reached 1.8", three / one));
  }

  const Sizes sizes_;
  TimedStream stream_;
  std::string name_;           // name of the current measurement
  double copy_bandwidth_ = 0;  // bytes read and written per second
};

int run(int argc, char** argv) {
  Sizes sizes;
  try {
    const std::optional<Sizes> parsed = parse_sizes(argc, argv);
    if (!parsed) return 0;
    sizes = *parsed;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 2;
  }
  sizes.bytes -= sizes.bytes % 16;

  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 0;
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "device");
  fmt::print("{}, {:.1f} GiB; vectors of {} bytes, gradients of {} elements\n", properties.name,
             static_cast<double>(properties.totalGlobalMem) / (1 << 30), sizes.bytes, sizes.elements);
  Bench(sizes).run();
#ifdef COLLECTIVES_GPU_BENCH_NCCL
  nccl_figures(devices, sizes.repeats);
#endif
  return 0;
}

}  // namespace
}  // namespace collectives::gpu_bench

int main(int argc, char** argv) {
  try {
    return collectives::gpu_bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 1;
  }
}
