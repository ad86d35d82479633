// Functions that launch GPU kernels. They launch at most as many threads as the GPU runs at a time, and throw an error
// if the launch fails.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "collectives/error.hpp"
#include "cuda/grid.hpp"
#include "cuda/kernels.hpp"

namespace collectives::cuda {

/// Number of threads of a block. It is smaller without CUDA, because tests then run the threads of a kernel one after
/// another on a CPU.
#ifdef __CUDACC__
inline constexpr unsigned kThreads = 512;
#else
inline constexpr unsigned kThreads = 64;
#endif

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // Clears the error. Otherwise the program would receive it, too.
  throw Error(Errc::system, std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

/// Returns the number of blocks for `items` units of work. The result is at most the number of blocks that the GPU runs
/// at a time. If there are more items than threads, each thread handles several items.
template <class Kernel>
unsigned blocks_for(Kernel* kernel, std::size_t items) {
  int device = 0, processors = 0, at_once = 0;
  check(cudaGetDevice(&device), "current device");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel, kThreads, 0), "occupancy");
  const std::size_t most = static_cast<std::size_t>(processors) * static_cast<std::size_t>(std::max(at_once, 1));
  return static_cast<unsigned>(std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, most));
}

template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), unsigned blocks, Stream stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}
/// Launches a kernel for `items` units of work, which its threads divide among themselves.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t items, Stream stream, const Arguments&... arguments) {
  launch_blocks(kernel, blocks_for(kernel, items), stream, arguments...);
}

__device__ inline std::size_t this_thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t all_threads() { return std::size_t{gridDim.x} * blockDim.x; }

/// Elements that fill 16 bytes together and are read or written in one access.
template <class T>
struct alignas(kVectorBytes) Vector {
  T lane[kVectorBytes / sizeof(T)];
};

}  // namespace collectives::cuda
