// Exports of libmnist_cuda.so (cuda_loader.cpp).
#pragma once

#include <cstddef>

#include "device.hpp"

extern "C" {

/// Returns the version that the library was built as. Other versions do not fit.
const char* mnist_cuda_version();

/// Implements mnist::load_cuda_device(). The caller deletes the device. Returns null and writes the reason in one line
/// if there is no GPU.
mnist::Device* mnist_cuda_device(int local_rank, char* why_not, std::size_t bytes);
}
