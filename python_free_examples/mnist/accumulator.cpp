// The first batch is copied, not added to zeros: it costs less, and keeps the sign of a zero.
#include "accumulator.hpp"

#include <algorithm>

namespace mnist {
namespace {

void add(std::size_t count, float* __restrict sum, const float* __restrict more) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
}

}  // namespace

void Accumulator::keep() {
  if (end_ == gradients_.size()) {
    add(end_, kept_.data(), gradients_.data());
  } else {
    kept_.assign(gradients_.begin(), gradients_.end());
    end_ = gradients_.size();
  }
}

void Accumulator::release(std::size_t from) {
  if (from >= end_) return;
  add(end_ - from, gradients_.data() + from, kept_.data() + from);
  end_ = from;
}

}  // namespace mnist
