// Handle states: the operations to which the program's handles refer. These are Work::State and PersistentCall::State.
#pragma once

#include <vector>

#include "communicator/operation_pool.hpp"

namespace collectives {

template <class WorkState, class PersistentState>
struct HandleStates {
  OperationPool<WorkState> works;
  std::vector<PersistentState*> persistent;  ///< persistent calls whose handles exist

  /// Calls visit() for the state of each handle.
  template <class Visit>
  void for_each(Visit&& visit) const {
    works.for_each(visit);
    for (PersistentState* const call : persistent) visit(*call);
  }
};

}  // namespace collectives
