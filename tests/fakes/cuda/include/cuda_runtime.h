// A fake of CUDA's language of kernels, by which kernels are compiled for the CPU. A launch runs the blocks of a grid
// one after the other. The threads of a block run in turns, from one __syncthreads() to the next (grid.cpp).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(threads)
/// Shared memory of a block is thread-local, because all threads of a block run on one thread of the CPU.
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

#define FAKE_CUDA_EXPORT __attribute__((visibility("default")))

/// Indices of the thread that runs, and the sizes of its block and grid.
extern FAKE_CUDA_EXPORT __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace fake_cuda {
/// Puts a kernel into a stream: `thread`, once for each thread of the grid.
FAKE_CUDA_EXPORT cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);
/// Puts one call into a stream.
FAKE_CUDA_EXPORT cudaError_t put(cudaStream_t stream, std::function<void()> work);
}  // namespace fake_cuda

FAKE_CUDA_EXPORT void __syncthreads();

inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline std::uint32_t atomicAdd(std::uint32_t* at, std::uint32_t more) {
  return std::atomic_ref(*at).fetch_add(more, std::memory_order_relaxed);
}
inline std::uint32_t atomicOr(std::uint32_t* at, std::uint32_t bits) {
  return std::atomic_ref(*at).fetch_or(bits, std::memory_order_relaxed);
}
inline std::uint32_t atomicAnd(std::uint32_t* at, std::uint32_t bits) {
  return std::atomic_ref(*at).fetch_and(bits, std::memory_order_relaxed);
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
/// Returns two blocks per multiprocessor, of which there are three. Grids thus have few threads, which must loop.
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int, std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return fake_cuda::launch(*config, [kernel, held = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
    std::apply(kernel, held);
  });
}
