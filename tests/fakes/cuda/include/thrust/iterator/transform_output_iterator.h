// A fake of transform_output_iterator in Thrust, CUDA's library of algorithms: it applies a function to each value that
// is written through it.
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
