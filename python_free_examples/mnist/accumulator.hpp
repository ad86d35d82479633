// Accumulator: adds up the gradients of a training step that has several batches. A batch is the images of one backward
// pass.
//
// The gradients of all batches but the last are added up first. The last batch's backward pass computes gradients layer
// by layer. As soon as the gradients of a layer are known, the sum for this layer is added to them. The all-reduce of
// the layer can then start, as early as in a step with one batch.
#pragma once

#include <cstddef>
#include <span>

#include "device.hpp"

namespace mnist {

class Accumulator {
 public:
  /// Makes an accumulator for `gradients`, which are in the memory of `device`. `gradients` and `device` must outlive
  /// this object.
  Accumulator(Device& device, std::span<float> gradients) : device_(device), gradients_(gradients) {}

  /// Adds the gradients of a batch to the sum. Requires that its step has a further batch.
  void keep();
  /// Adds the sum to the gradients of the last batch, from element `from` on. Skips elements of earlier calls. Requires
  /// that the backward pass has computed these gradients.
  void release(std::size_t from);

 private:
  Device& device_;
  std::span<float> gradients_;
  Vector kept_;          // allocated by the first keep()
  std::size_t end_ = 0;  // elements of kept_ that release() has not added yet
};

}  // namespace mnist
