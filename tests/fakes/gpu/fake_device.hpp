// Fake GPUs for tests on machines without a GPU. Their memory is ordinary memory that only their own copies and kernels
// may touch; any other access ends the process by SIGSEGV. A stream is a thread with a queue. An illegal access, such
// as a copy past the end of an allocation or a kernel on memory of the host, fails the GPU, as it fails a real one.
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
  /// `spread`: ranks of run_ranks() that have set none take turns, rank 1 the second GPU.
  explicit FakeGpus(int count = 1, bool spread = false);
  /// Nothing of them may be in use any more.
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  /// GPU of the calling thread from now on; 0 at first.
  static void set_current(int gpu);
  static int current();
  /// That of the calling thread, as a communicator would get it.
  std::unique_ptr<Device> device();

  // Calls of programs. Functions that wait have no deadline.

  /// Allocates memory of the current GPU and fills it with a pattern that no result has.
  void* allocate(std::size_t bytes, Device::Kind kind = Device::Kind::device);
  void free(void* memory);
  /// Waits.
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  Device::Stream new_stream();
  void end_stream(Device::Stream stream);
  /// A kernel, on memory that it is told.
  void put(Device::Stream stream, std::vector<std::pair<void*, std::size_t>> touched, std::function<void()> kernel);
  bool idle(Device::Stream stream);
  void synchronize(Device::Stream stream);
  /// From now on, what is put into `stream` is as if written down for a graph.
  void capture(Device::Stream stream, bool on);

  // Events that tests cause.

  /// Each operation of a stream takes so much longer.
  void slow_down(int gpu, std::chrono::microseconds by);
  /// From now on, to take memory waits until nothing is in its streams, as CUDA may do.
  void allocate_when_idle(int gpu);
  /// It does nothing any more until it goes on; calls succeed.
  void stop(int gpu);
  void resume(int gpu);
  /// Every call from now on fails.
  void disappear(int gpu);
  /// It is as if of a pool: no other process can open it.
  void take_from_pool(void* memory);
  /// Sets the NCCL that devices find. Null, the initial value, means none.
  void set_nccl(const Nccl* nccl);
  /// The host may touch what is allocated from now on.
  void let_the_host_in();
  /// Neither reaches the other's memory.
  void keep_apart(int one, int other);

  /// Allocations of any kind, and streams, that nobody has given back.
  std::size_t allocations() const;
  std::size_t streams() const;
  /// Copies and kernels performed so far by all GPUs.
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
