// Functions that implement parts of the CPU as a device of the trainer (processor.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device.hpp"

namespace mnist {

/// Returns a builder of forward and backward passes for `images` images. The passes call the library oneDNN
/// (processor_passes.cpp).
std::unique_ptr<PassBuilder> build_with_onednn(std::size_t images, bool training);

/// Performs Device::add() on the CPU (processor_loops.cpp).
void add_in_loop(std::span<const float> more, std::span<float> sum);
/// Performs Device::update() on the CPU (processor_loops.cpp).
void update_in_loop(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients,
                    std::span<float> state, float rate);

}  // namespace mnist
