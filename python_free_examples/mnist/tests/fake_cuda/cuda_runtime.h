// Stand-in for CUDA's runtime that runs on a CPU. It has only the functions that the trainer calls. Tests without a GPU
// compile the sources in gpu/ with this file, cublas_v2.h and cudnn.h.
//
// A call is queued in its stream. The stream runs one call each time the program asks whether the stream is idle. Only
// calls in a stream can access device memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorNoDevice,
  cudaErrorNotReady
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[256];
};
struct CUstream_st {
  std::deque<std::function<void()>> calls;
};
using cudaStream_t = CUstream_st*;

namespace fake_cuda {

struct Machine {
  std::recursive_mutex lock;
  int devices = 1, current = 0;
  bool eager = false;  ///< whether calls run at once, and the CPU may access device memory
  std::map<void*, std::size_t> memory;
  std::map<cudaStream_t, bool> streams;
};
inline Machine& machine() {
  static Machine one;
  return one;
}

inline void protect(int protection) {
  if (machine().eager) return;
  for (const auto& [data, bytes] : machine().memory) ::mprotect(data, bytes, protection);
}

inline void perform(const std::function<void()>& call) {
  const std::lock_guard lock(machine().lock);
  protect(PROT_READ | PROT_WRITE);
  call();
  protect(PROT_NONE);
}

inline void enqueue(cudaStream_t stream, std::function<void()> call) {
  machine().eager ? perform(call) : stream->calls.push_back(std::move(call));
}

inline bool perform_next(cudaStream_t stream) {
  if (stream->calls.empty()) return false;
  perform(stream->calls.front());
  stream->calls.pop_front();
  return true;
}

}  // namespace fake_cuda

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error of the stand-in";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda::machine().devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
inline cudaError_t cudaSetDevice(int device) {
  fake_cuda::machine().current = device;
  return device < fake_cuda::machine().devices ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "stand-in");
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(fake_cuda::machine().lock);
  fake_cuda::machine().streams[*stream = new CUstream_st] = true;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(fake_cuda::machine().lock);
  fake_cuda::machine().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return fake_cuda::perform_next(stream) ? cudaErrorNotReady : cudaSuccess;
}

inline cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const std::lock_guard lock(fake_cuda::machine().lock);
  const int protection = fake_cuda::machine().eager ? PROT_READ | PROT_WRITE : PROT_NONE;
  *data = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*data == MAP_FAILED) return cudaErrorMemoryAllocation;
  fake_cuda::machine().memory[*data] = bytes;
  return cudaSuccess;
}
/// Runs all streams first, as CUDA does.
inline cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const std::lock_guard lock(fake_cuda::machine().lock);
  for (const auto& [stream, known] : fake_cuda::machine().streams)
    while (known && fake_cuda::perform_next(stream)) {
    }
  const auto found = fake_cuda::machine().memory.find(data);
  if (found == fake_cuda::machine().memory.end()) return cudaErrorInvalidValue;
  ::munmap(data, found->second);
  fake_cuda::machine().memory.erase(found);
  return cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = ::operator new(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* data) {
  ::operator delete(data);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  fake_cuda::enqueue(stream, [=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  fake_cuda::enqueue(stream, [=] {
    if (bytes > 0) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}
