// Functions that libcollectives_cuda exports. This shared library contains the code compiled with CUDA. The core
// library loads it at run time, and finds these functions by their C names.
#include <cstdio>
#include <exception>

#include "cuda/device.hpp"
#include "device/cuda_component.hpp"

const char* collectives_cuda_version() { return COLLECTIVES_VERSION; }

void collectives_cuda_use(int number) { collectives::cuda::use_gpu(number); }

collectives::Device* collectives_cuda_device(char* why_not, std::size_t bytes) {
  std::string why;
  try {
    if (auto gpu = collectives::cuda::current_gpu(why)) return gpu.release();
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::snprintf(why_not, bytes, "%s", why.c_str());
  return nullptr;
}
