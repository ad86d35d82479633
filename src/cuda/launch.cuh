// Launching: grids that fill the device once, and errors.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "collectives/error.hpp"
#include "cuda/grid.hpp"
#include "cuda/kernels.hpp"

namespace collectives::cuda {

/// Of a block. A processor that stands in for a GPU runs them one after the other.
#ifdef __CUDACC__
inline constexpr unsigned kThreads = 512;
#else
inline constexpr unsigned kThreads = 64;
#endif

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the program would be told of it, too
  throw Error(Errc::system, std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

/// Blocks of a grid whose threads take `items` in turn: as many as the device runs at once, or fewer.
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
/// A grid whose threads take `items` in turn.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t items, Stream stream, const Arguments&... arguments) {
  launch_blocks(kernel, blocks_for(kernel, items), stream, arguments...);
}

__device__ inline std::size_t this_thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t all_threads() { return std::size_t{gridDim.x} * blockDim.x; }

/// Sixteen bytes of elements, read and written at once.
template <class T>
struct alignas(kVectorBytes) Vector {
  T lane[kVectorBytes / sizeof(T)];
};

}  // namespace collectives::cuda
