// A fake of Thrust's transform_output_iterator, for writing only.
#pragma once

#include <cstddef>

namespace thrust {

template <class Function, class Out>
struct transform_output_iterator {
  Out out;
  Function function;
  template <class T>
  void write(std::size_t i, const T& item) {
    out[i] = function(item);
  }
};
template <class Function, class Out>
transform_output_iterator<Function, Out> make_transform_output_iterator(Out out, Function function) {
  return {out, function};
}

}  // namespace thrust
