// OperationPool: keeps the objects (states) of ended operations for later operations. An operation is one call of a
// communicator, from its issue to its end. Repeated calls therefore allocate no new objects.
//
// Communicator::Impl takes a state for each asynchronous call, and for each blocking call on GPU memory. The work of
// such a blocking call may continue in a GPU stream after the call. A state is free again when only the pool refers to
// it. The caller must hold the communicator's lock, ProgressThread::guard().
#pragma once

#include <memory>
#include <vector>

namespace collectives {

template <class State>
class OperationPool {
 public:
  /// Returns a state to which nothing else refers. Makes one if all are in use.
  std::shared_ptr<State> unused() {
    for (auto& pooled : states_)
      if (pooled.use_count() == 1) return pooled;
    return states_.emplace_back(std::make_shared<State>());
  }
  /// Calls visit() for all states, used or not.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& state : states_) visit(*state);
  }

 private:
  std::vector<std::shared_ptr<State>> states_;
};

}  // namespace collectives
