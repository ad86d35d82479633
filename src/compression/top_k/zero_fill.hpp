// ZeroFill: sets a vector to zero in pieces of at most 65,536 elements. A rank that waits for messages of its peers
// fills one piece after another, and checks for messages between the pieces.
#pragma once

#include <cstddef>

namespace collectives {

class ZeroFill {
 public:
  /// Begins to set the `count` elements at `to` to zero. Writes no zeros yet.
  void start(float* to, std::size_t count) noexcept {
    to_ = to;
    count_ = count;
    filled_ = 0;
  }
  bool is_complete() const noexcept { return filled_ == count_; }
  /// Sets the next 65,536 elements to zero, or all that remain. A call takes some microseconds.
  void fill_some();
  /// Sets all remaining elements to zero.
  void fill_rest() { fill(count_ - filled_); }

 private:
  void fill(std::size_t elements);

  float* to_ = nullptr;
  std::size_t count_ = 0, filled_ = 0;
};

}  // namespace collectives
