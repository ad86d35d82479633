// Functions that libmnist_cuda.so exports. The trainer loads this library only if it uses a GPU (cuda_loader.cpp).
#pragma once

#include <cstddef>

#include "device.hpp"

extern "C" {

/// Returns the version of this library. The trainer refuses a library of another version.
const char* mnist_cuda_version();

/// Returns a new device for mnist::load_cuda_device(), which the caller deletes. If there is no GPU, returns null and
/// writes the reason to `why_not` in one line.
mnist::Device* mnist_cuda_device(int local_rank, char* why_not, std::size_t bytes);
}
