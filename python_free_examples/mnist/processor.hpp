// Functions that implement parts of the device on the CPU (processor.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device.hpp"

namespace mnist {

/// Returns a builder of passes by oneDNN. Defined in processor_passes.cpp.
std::unique_ptr<PassBuilder> build_with_onednn(std::size_t images, bool training);

/// Implements Device::add(). Defined in processor_loops.cpp.
void add_in_loop(std::span<const float> more, std::span<float> sum);
/// Implements Device::update(). Defined in processor_loops.cpp.
void update_in_loop(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                    std::span<float> state, float rate);

}  // namespace mnist
