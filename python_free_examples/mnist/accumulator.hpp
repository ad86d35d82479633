// Adds up the gradients of a training step that has several batches.
//
// The gradients of all batches but the last are added up first. During the backward pass of the last batch, this sum is
// added to the gradients of the last batch, layer by layer. The gradients of a layer are then complete. Their
// all-reduce starts. The all-reduce starts as early as in a step of one batch.
#pragma once

#include <cstddef>
#include <span>

#include "device.hpp"

namespace mnist {

class Accumulator {
 public:
  /// Makes an accumulator for `gradients`, which are in the memory of `device`. Both must outlive this object.
  Accumulator(Device& device, std::span<float> gradients) : device_(device), gradients_(gradients) {}

  /// Adds the gradients of a batch that is not the last one of its step.
  void keep();
  /// Adds the sum to the gradients of the last batch, from element `from` to the end. These gradients must be final.
  /// Each element is added once.
  void release(std::size_t from);

 private:
  Device& device_;
  std::span<float> gradients_;
  Vector kept_;          // allocated by the first keep()
  std::size_t end_ = 0;  // kept_[0, end_) is not released yet
};

}  // namespace mnist
