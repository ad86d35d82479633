// OperationFifo: a first-in, first-out list of unfinished operations of a communicator. The list holds shared pointers.
// A caller that waits for an operation has its own pointer. The operation thus stays valid after its removal from the
// list.
//
// Unlike a std::deque, the list keeps its memory until it is destroyed. If a program repeats its calls, the list
// therefore allocates no more memory. Removing the front operation leaves an empty place. When the memory is full,
// push() removes the empty places. If there are none, the memory grows.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "communicator/operation.hpp"

namespace collectives {

class OperationFifo {
 public:
  OperationFifo() { operations_.reserve(64); }

  bool empty() const noexcept { return first_ == operations_.size(); }
  Operation& front() const noexcept { return *operations_[first_]; }
  const std::shared_ptr<Operation>& share() const noexcept { return operations_[first_]; }
  /// Removes the front operation and returns it.
  std::shared_ptr<Operation> take() noexcept {
    std::shared_ptr<Operation> operation = operations_[first_];
    pop();
    return operation;
  }
  void push(std::shared_ptr<Operation> operation) {
    if (operations_.size() == operations_.capacity()) {
      operations_.erase(operations_.begin(), operations_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    operations_.push_back(std::move(operation));
  }
  void pop() noexcept {
    operations_[first_++] = nullptr;
    if (empty()) clear();
  }
  void clear() noexcept {
    operations_.clear();
    first_ = 0;
  }
  /// Calls visit() for all operations, oldest first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = first_; i < operations_.size(); ++i) visit(*operations_[i]);
  }

 private:
  std::vector<std::shared_ptr<Operation>> operations_;
  std::size_t first_ = 0;
};

}  // namespace collectives
