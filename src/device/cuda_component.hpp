// Functions that libcollectives_cuda exports. They have C names, and the core library finds them at run time, so that
// it also runs without CUDA.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Device;
}

extern "C" {
/// Returns the version of the component. It must equal that of the core library.
COLLECTIVES_EXPORT const char* collectives_cuda_version();
/// Makes GPU `number` modulo the number of GPUs current to this thread. Does nothing if there is no GPU.
COLLECTIVES_EXPORT void collectives_cuda_use(int number);
/// Returns the GPU that is current to this thread. The caller deletes it. Returns null if there is no driver, if the
/// driver is too old, or if there is no GPU. Then writes the reason into up to `bytes` bytes of `why_not`.
COLLECTIVES_EXPORT collectives::Device* collectives_cuda_device(char* why_not, std::size_t bytes);
}
