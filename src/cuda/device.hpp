// Functions that make a Device for this thread's GPU. Device (device/device.hpp) is the library's interface to one GPU,
// which device.cpp implements by CUDA. CUDA has one current GPU for each thread.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"

namespace collectives::cuda {

/// Makes a GPU current to this thread: GPU `number` modulo the number of GPUs. Does nothing if there is no GPU.
void use_gpu(int number) noexcept;

/// Returns the GPU that is current to this thread. Returns null and sets `why_not` to one line if there is none. Throws
/// Error{system} for other errors of CUDA.
std::unique_ptr<Device> current_gpu(std::string& why_not);

}  // namespace collectives::cuda
