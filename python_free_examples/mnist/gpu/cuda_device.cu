// Implementation of the device on a GPU: memory, computations on whole vectors, and the entry points of
// libmnist_cuda.so.
#include <cstdio>
#include <exception>

#include "gpu/component.hpp"
#include "gpu/cuda_device.hpp"
#include "gpu/kernels.cuh"

namespace mnist::cuda {
namespace {

/// Makes the device with number `local_rank`, modulo the number of devices, the current one.
cudaDeviceProp choose_device(int local_rank) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0)
    throw std::runtime_error(std::string("no CUDA device: ") +
                             (found != cudaSuccess ? cudaGetErrorString(found) : "there are none"));
  cudaDeviceProp properties;
  check(cudaSetDevice(local_rank % count), "device");
  check(cudaGetDeviceProperties(&properties, local_rank % count), "its name");
  return properties;
}

}  // namespace

CudaDevice::CudaDevice(int local_rank) : description_(std::string("cuda: ") + choose_device(local_rank).name) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  stream_.reset(stream);
  cublasHandle_t blas = nullptr;
  check(cublasCreate(&blas), "start");
  blas_.reset(blas);
  check(cublasSetStream(blas, stream), "stream");
  cudnnHandle_t dnn = nullptr;
  check(cudnnCreate(&dnn), "start");
  dnn_.reset(dnn);
  check(cudnnSetStream(dnn, stream), "stream");
}

Vector CudaDevice::make(std::size_t count) {
  const Vector made(device_memory<float>(count), count);
  clear(made.span());
  return made;
}

void CudaDevice::clear(std::span<float> values) {
  check(cudaMemsetAsync(values.data(), 0, values.size_bytes(), cuda_stream()), "clear");
}

void CudaDevice::copy(std::span<const float> from, std::span<float> to) {
  check(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDefault, cuda_stream()), "copy");
}

void CudaDevice::read(std::span<const float> from, std::span<float> to) {
  copy(from, to);
  wait_for(*this);
}

void CudaDevice::write(std::span<const float> from, std::span<float> to) {
  copy(from, to);
  wait_for(*this);
}

void CudaDevice::add(std::span<const float> more, std::span<float> sum) {
  each(cuda_stream(), sum.size(), Add{sum.data(), more.data()});
}

void CudaDevice::update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                        std::span<float> state, float rate) {
  const std::size_t count = weights.size();
  float *const w = weights.data(), *const v = state.data();
  const float* const g = gradients.data();
  switch (kind) {
    case OptimizerKind::sgd: return each(cuda_stream(), count, Sgd{w, g, rate});
    case OptimizerKind::momentum: return each(cuda_stream(), count, Momentum{w, v, g, rate});
    case OptimizerKind::nesterov: return each(cuda_stream(), count, Nesterov{w, v, g, rate});
    case OptimizerKind::adam: return each(cuda_stream(), count, Adam{w, v, v + count, g, rate});
  }
}

bool CudaDevice::idle() {
  const cudaError_t status = cudaStreamQuery(cuda_stream());
  if (status == cudaErrorNotReady) return false;
  check(status, "a step");
  return true;
}

}  // namespace mnist::cuda

extern "C" __attribute__((visibility("default"))) const char* mnist_cuda_version() { return MNIST_VERSION; }

extern "C" __attribute__((visibility("default"))) mnist::Device* mnist_cuda_device(int local_rank, char* why_not,
                                                                                   std::size_t bytes) {
  try {
    return new mnist::cuda::CudaDevice(local_rank);
  } catch (const std::exception& error) {
    std::snprintf(why_not, bytes, "%s", error.what());
    return nullptr;
  }
}
