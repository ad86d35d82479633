// A step of several batches: the gradients of all but the last are added up here and join those of the last one while
// its backward pass runs, layer by layer, so that buckets set off as early as in a step of one batch.
#pragma once

#include <cstddef>
#include <span>

#include "device.hpp"

namespace mnist {

class Accumulator {
 public:
  /// `gradients`, in the memory of `device`, stays the caller's; both must outlive this.
  Accumulator(Device& device, std::span<float> gradients) : device_(device), gradients_(gradients) {}

  /// Another batch follows: adds the gradients of this one to what is kept.
  void keep();
  /// The gradients of the last batch from element `from` to the end are final: adds what is kept to them, once.
  void release(std::size_t from);

 private:
  Device& device_;
  std::span<float> gradients_;
  Vector kept_;          // made at the first keep()
  std::size_t end_ = 0;  // kept_[0, end_) waits for release()
};

}  // namespace mnist
