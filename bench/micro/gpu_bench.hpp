// Classes and functions for the files of gpu_bench, the benchmark on GPUs: GPU memory, and a CUDA stream that times
// actions.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/bounded_yield.hpp"

namespace collectives::gpu_bench {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(status)));
}

/// Exception that a measurement throws if the GPU has too little free memory.
struct NoMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    const cudaError_t status = cudaMalloc(&data_, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, so that the next call does not report it
      throw NoMemory(fmt::format("no {} MiB of the device's memory are left", bytes >> 20));
    }
    check(status, "memory");
    check(cudaMemset(data_, 0, bytes), "memory");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <class T = std::byte>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

using Memory = std::unique_ptr<DeviceMemory>;
inline Memory memory(std::size_t bytes) { return std::make_unique<DeviceMemory>(bytes); }

/// Returns the median of `values`. If their number is even, returns the larger one of the two middle values.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// CUDA stream of the current device, with two events by which it times actions.
class TimedStream {
 public:
  TimedStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check(cudaEventCreate(&before_), "event");
    check(cudaEventCreate(&after_), "event");
  }
  ~TimedStream() {
    cudaEventDestroy(before_);
    cudaEventDestroy(after_);
    cudaStreamDestroy(stream_);
  }
  TimedStream(const TimedStream&) = delete;
  TimedStream& operator=(const TimedStream&) = delete;
  cudaStream_t get() const { return stream_; }

  /// Calls `action`, which adds work to the stream. Returns the seconds between an event before that work and an event
  /// after it. Throws if the device takes more than two minutes.
  double time(const std::function<void()>& action) {
    check(cudaEventRecord(before_, stream_), "event");
    action();
    check(cudaEventRecord(after_, stream_), "event");
    const auto start = std::chrono::steady_clock::now();
    BoundedYield pause;
    for (cudaError_t status; (status = cudaEventQuery(after_)) != cudaSuccess; pause.wait()) {
      if (status != cudaErrorNotReady) check(status, "what was timed");
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(2))
        throw std::runtime_error("the device has not performed in two minutes what was timed");
    }
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, before_, after_), "time");
    return 1e-3 * static_cast<double>(milliseconds);
  }
  /// Returns the median time of `repeats` runs of `action`, after some untimed runs.
  double median_time(int repeats, const std::function<void()>& action) {
    constexpr int kWarmUps = 3;
    std::vector<double> seconds;
    for (int i = -kWarmUps; i < repeats; ++i) {
      const double one = time(action);
      if (i >= 0) seconds.push_back(one);
    }
    return median(std::move(seconds));
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
};

/// Times calls of the library that use NCCL, and prints one line for each (gpu_bench_nccl.cpp). Each of the `devices`
/// GPUs is a rank.
void nccl_figures(int devices, int repeats);

}  // namespace collectives::gpu_bench
