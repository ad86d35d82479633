// A fake of Thrust's counting_iterator.
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
