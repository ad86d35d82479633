// The GPU of a rank, by CUDA.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"

namespace collectives::cuda {

/// Makes GPU number `number` modulo their count current to this thread, where there is any.
void use_gpu(int number) noexcept;

/// That which is current to this thread; null, and why in a line, where there is none to be had. Throws Error{system}
/// for what CUDA refuses otherwise.
std::unique_ptr<Device> current_gpu(std::string& why_not);

}  // namespace collectives::cuda
