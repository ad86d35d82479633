// Implementation of the accumulator, which adds up the gradients of a training step with several batches. The gradients
// of the first batch are copied, not added to zeros: a copy takes less time and keeps the sign of -0.
#include "accumulator.hpp"

namespace mnist {

void Accumulator::keep() {
  if (kept_.span().empty()) kept_ = device_.make(gradients_.size());
  if (end_ == gradients_.size()) {
    device_.add(gradients_, kept_.span());
  } else {
    device_.copy(gradients_, kept_.span());
    end_ = gradients_.size();
  }
}

void Accumulator::release(std::size_t from) {
  if (from >= end_) return;
  device_.add(kept_.span().subspan(from, end_ - from), gradients_.subspan(from, end_ - from));
  end_ = from;
}

}  // namespace mnist
