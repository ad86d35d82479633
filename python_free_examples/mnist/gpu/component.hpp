// Functions that libmnist_cuda.so exports. The trainer loads this library only if it uses a GPU (cuda_loader.cpp).
#pragma once

#include <cstddef>

#include "device.hpp"

extern "C" {

/// Returns the version with which the library was built. The trainer refuses another version than its own.
const char* mnist_cuda_version();

/// Implements mnist::load_cuda_device(). The caller deletes the device. Returns null and writes the reason in one line
/// if there is no GPU.
mnist::Device* mnist_cuda_device(int local_rank, char* why_not, std::size_t bytes);
}
