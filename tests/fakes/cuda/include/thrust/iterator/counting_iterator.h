// A fake of counting_iterator in Thrust, CUDA's library of algorithms: an iterator whose value is its index.
#pragma once

#include <cstddef>

namespace thrust {

template <class T>
struct counting_iterator {
  T first;
  explicit counting_iterator(T from) : first(from) {}
  T operator[](std::ptrdiff_t i) const { return first + static_cast<T>(i); }
};

}  // namespace thrust
