// The first batch is copied instead of added to zeros. A copy costs less and keeps the sign of a zero.
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
