// ReusedList: list whose objects stay when the list is emptied, with the memory that they own. A program that repeats
// its calls therefore allocates nothing after the first time. The address of an object does not change.
#pragma once

#include <cstddef>
#include <deque>

namespace collectives {

template <class T>
class ReusedList {
 public:
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T& operator[](std::size_t at) const noexcept { return objects_[at]; }
  auto begin() noexcept { return objects_.begin(); }
  auto end() noexcept { return objects_.begin() + static_cast<std::ptrdiff_t>(size_); }
  auto begin() const noexcept { return objects_.begin(); }
  auto end() const noexcept { return objects_.begin() + static_cast<std::ptrdiff_t>(size_); }

  /// Returns the object that add_spare() adds. It has the values of its last use.
  T& spare() { return size_ < objects_.size() ? objects_[size_] : objects_.emplace_back(); }
  void add_spare() noexcept { ++size_; }
  void clear() noexcept { size_ = 0; }

 private:
  std::deque<T> objects_;
  std::size_t size_ = 0;
};

}  // namespace collectives
