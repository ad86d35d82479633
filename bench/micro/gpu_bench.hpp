// What the figures of gpu_bench have in common: memory of a device, and the time of what a stream performs.
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
#include <thread>
#include <vector>

namespace collectives::gpu_bench {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(status)));
}

/// There is less of the device's memory than a figure needs.
struct NoMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    const cudaError_t status = cudaMalloc(&data_, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // is not the next call's
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

/// The smallest that half of `values` do not exceed.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A stream of the current device, and what it takes to perform something.
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

  /// Seconds between two events, before and behind what `action` puts into the stream. Throws when the device does not
  /// get there within two minutes.
  double time(const std::function<void()>& action) {
    check(cudaEventRecord(before_, stream_), "event");
    action();
    check(cudaEventRecord(after_, stream_), "event");
    const auto start = std::chrono::steady_clock::now();
    for (cudaError_t status; (status = cudaEventQuery(after_)) != cudaSuccess; std::this_thread::yield()) {
      if (status != cudaErrorNotReady) check(status, "what was timed");
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(2))
        throw std::runtime_error("the device has not performed in two minutes what was timed");
    }
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, before_, after_), "time");
    return 1e-3 * static_cast<double>(milliseconds);
  }
  /// The median of some times, behind some that do not count.
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

/// What the library adds to NCCL (gpu_bench_nccl.cpp): all GPUs here, a rank each. Prints a line for each figure.
void nccl_figures(int devices, int repeats);

}  // namespace collectives::gpu_bench
