// Handle states: the operations to which the program's handles refer, Work and PersistentCall.
#pragma once

#include <vector>

#include "communicator/operation.hpp"
#include "communicator/operation_pool.hpp"
#include "communicator/persistent_state.hpp"

namespace collectives {

struct HandleStates {
  OperationPool<Work::State> works;
  std::vector<PersistentCall::State*> persistent;  ///< persistent calls whose handles exist

  /// Calls visit() for the state of each handle.
  template <class Visit>
  void for_each(Visit&& visit) const {
    works.for_each(visit);
    for (PersistentCall::State* const call : persistent) visit(*call);
  }
};

}  // namespace collectives
