// Functions that libcollectives_cuda exports. This shared library holds the code compiled with CUDA. The core library
// loads libcollectives_cuda at run time. It finds the functions by their C names. The core library therefore also runs
// on machines without CUDA.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Device;
}

extern "C" {
/// Returns the version of libcollectives_cuda. It must equal that of the core library.
COLLECTIVES_EXPORT const char* collectives_cuda_version();
/// Makes one GPU current to this thread: GPU `number` modulo the number of GPUs. Does nothing if there is no GPU.
COLLECTIVES_EXPORT void collectives_cuda_use(int number);
/// Returns a new object for the GPU that is current to this thread. The caller deletes the object. Returns null if
/// there is no driver, if the driver is too old, or if there is no GPU. In these cases, writes the reason into
/// `why_not`, which has `bytes` bytes.
COLLECTIVES_EXPORT collectives::Device* collectives_cuda_device(char* why_not, std::size_t bytes);
}
