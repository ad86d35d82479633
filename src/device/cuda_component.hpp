// What libcollectives_cuda exports: C names, found by the core library at run time, so that it runs without CUDA too.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Device;
}

extern "C" {
/// The version of the library it belongs to, which must be that of the core.
COLLECTIVES_EXPORT const char* collectives_cuda_version();
/// Makes the GPU current to this thread that `number` comes to where those of the machine are counted round and round.
/// Nothing where there is none.
COLLECTIVES_EXPORT void collectives_cuda_use(int number);
/// The GPU that is current to this thread, which the caller deletes; null, and why in up to `bytes` bytes, where there
/// is no driver, none that is new enough, or no GPU.
COLLECTIVES_EXPORT collectives::Device* collectives_cuda_device(char* why_not, std::size_t bytes);
}
