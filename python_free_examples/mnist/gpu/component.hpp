// What libmnist_cuda.so exports (cuda_loader.cpp).
#pragma once

#include <cstddef>

#include "device.hpp"

extern "C" {

/// The version that it was built as; another one does not fit.
const char* mnist_cuda_version();

/// As mnist::load_cuda_device(), to be deleted by the caller; null, and why in a line, where there is none.
mnist::Device* mnist_cuda_device(int local_rank, char* why_not, std::size_t bytes);
}
