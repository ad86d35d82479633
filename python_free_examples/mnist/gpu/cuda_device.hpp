// GPU as a device of the trainer, which trains a model on a CPU or a GPU. All computations of the device run in one
// CUDA stream.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

#include "device.hpp"
#include "gpu/check.hpp"

namespace mnist::cuda {

/// Deleter for std::unique_ptr that calls a C function.
template <auto end>
struct Ended {
  template <class Object>
  void operator()(Object* object) const {
    end(object);
  }
};
template <class Handle, auto end>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Ended<end>>;

/// Return memory of the current GPU, or pinned CPU memory. The last copy of the pointer frees the memory.
template <class T>
std::shared_ptr<T> device_memory(std::size_t count) {
  void* data = nullptr;
  if (count > 0) check(cudaMalloc(&data, count * sizeof(T)), "memory of the device");
  return {static_cast<T*>(data), [](T* memory) { cudaFree(memory); }};
}
template <class T>
std::shared_ptr<T> pinned_memory(std::size_t count) {
  void* data = nullptr;
  check(cudaMallocHost(&data, count * sizeof(T)), "pinned memory");
  return {static_cast<T*>(data), [](T* memory) { cudaFreeHost(memory); }};
}

class CudaDevice : public Device {
 public:
  /// Selects a GPU for this process. The processes of a host use its GPUs in turn. If there is no GPU, throws
  /// std::runtime_error with a text of one line.
  explicit CudaDevice(int local_rank);

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return description_; }
  std::optional<void*> stream() const override { return stream_.get(); }
  Vector make(std::size_t count) override;
  void clear(std::span<float> values) override;
  void copy(std::span<const float> from, std::span<float> to) override;
  void read(std::span<const float> from, std::span<float> to) override;
  void write(std::span<const float> from, std::span<float> to) override;
  void add(std::span<const float> more, std::span<float> sum) override;
  void update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients, std::span<float> state,
              float rate) override;
  std::unique_ptr<PassBuilder> build(std::size_t images, bool training) override;
  bool idle() override;

  cudaStream_t cuda_stream() const { return stream_.get(); }
  cublasHandle_t blas() const { return blas_.get(); }
  cudnnHandle_t dnn() const { return dnn_.get(); }

 private:
  std::string description_;
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
  Owned<cublasHandle_t, cublasDestroy> blas_;
  Owned<cudnnHandle_t, cudnnDestroy> dnn_;
};

}  // namespace mnist::cuda
