// Fake GPUs for tests on machines without a GPU. Their memory is CPU memory that only their own copies and kernels may
// access. Any other access ends the process by SIGSEGV. A stream is a thread with a queue.
//
// An illegal access by a copy or kernel fails the fake GPU, as it fails a real one. Examples are a copy past the end of
// an allocation, and a kernel that accesses CPU memory.
//
//   FakeGpus gpus(2);                        // while it lives, communicators find their devices here
//   FakeGpus::set_current(1);                // for this thread, as cudaSetDevice does
//   OnGpu<float> data(gpus, std::vector{1.f, 2.f});
//   comm.all_reduce(data.buffer());
//   EXPECT_EQ(data.values(), ...);
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace collectives::testing {

class FakeGpus {
 public:
  /// Makes `count` fake GPUs. With `spread`, rank r of run_ranks() works on GPU r % count, unless it has set another
  /// one.
  explicit FakeGpus(int count = 1, bool spread = false);
  /// Requires that nothing of the GPUs is in use.
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  /// Sets the GPU of the calling thread. Initially it is 0.
  static void set_current(int gpu);
  static int current();
  /// Returns the device of the calling thread, as a communicator would get it.
  std::unique_ptr<Device> device();

  // Functions that stand for CUDA's calls in a program. Their waits have no deadline.

  /// Allocates memory of the current GPU and fills it with a pattern that no result has.
  void* allocate(std::size_t bytes, Device::Kind kind = Device::Kind::device);
  void free(void* memory);
  /// Copies between GPU memory and CPU memory. Blocks until the copy is done.
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  Device::Stream new_stream();
  void end_stream(Device::Stream stream);
  /// Puts a kernel into a stream. `touched` lists the memory ranges that it touches.
  void put(Device::Stream stream, std::vector<std::pair<void*, std::size_t>> touched, std::function<void()> kernel);
  bool idle(Device::Stream stream);
  void synchronize(Device::Stream stream);
  /// Sets `stream` to the state in which its calls are captured for a graph.
  void capture(Device::Stream stream, bool on);

  // Events that tests cause.

  /// Makes each operation of a stream last longer by this time.
  void slow_down(int gpu, std::chrono::microseconds by);
  /// Makes each allocation wait until the streams are empty, as CUDA may do.
  void allocate_when_idle(int gpu);
  /// Stops the GPU until it is resumed. Calls succeed.
  void stop(int gpu);
  void resume(int gpu);
  /// Makes every later call fail.
  void disappear(int gpu);
  /// Makes memory like that of a pool, which no other process can open.
  void take_from_pool(void* memory);
  /// Sets the NCCL that devices find. Null, the initial value, means none.
  void set_nccl(const Nccl* nccl);
  /// Makes later allocations accessible to the host.
  void let_the_host_in();
  /// Makes the memory of the two GPUs inaccessible to each other.
  void keep_apart(int one, int other);

  /// Returns the number of allocations of any kind, and of streams, that have not been freed.
  std::size_t allocations() const;
  std::size_t streams() const;
  /// Returns the numbers of copies and kernels of all GPUs.
  std::size_t copies() const;
  std::size_t kernels() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// An array in the memory of the current GPU.
template <class T>
class OnGpu {
 public:
  OnGpu(FakeGpus& gpus, std::size_t count, Device::Kind kind = Device::Kind::device)
      : gpus_(&gpus), count_(count), data_(static_cast<T*>(gpus.allocate(count * sizeof(T), kind))) {}
  OnGpu(FakeGpus& gpus, const std::vector<T>& values) : OnGpu(gpus, values.size()) { set(values); }
  ~OnGpu() { gpus_->free(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return data_; }
  Buffer buffer() const { return {data_, count_, data_type_v<T>}; }
  void set(const std::vector<T>& values) const { gpus_->upload(data_, values.data(), values.size() * sizeof(T)); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    gpus_->download(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  FakeGpus* gpus_;
  std::size_t count_;
  T* data_;
};

}  // namespace collectives::testing
