// Helpers for the functions of the C interface that perform collectives. The function in() returns the communicator of
// a handle. The function called() performs a blocking call, and issued() starts an asynchronous one. The functions
// called() and issued() catch exceptions, and return an error code.
#pragma once

#include <memory>

#include "c_interface/handles.hpp"

namespace collectives::c {

inline Communicator& in(collectives_communicator* comm) { return require(comm, "comm").comm; }

/// Calls call(), which performs a collective of `comm`. If call() refuses an argument before it has called the C++
/// function, publishes this refusal. Other ranks in the same call then get an error.
template <class Call>
collectives_error called(const char* function, collectives_communicator* comm, CallRefusal refusal,
                         Call&& call) noexcept {
  return guarded(function, [&] { refusing(in(comm), refusal, call); });
}

/// Starts a collective of `comm` by issue(), and stores the handle in `*work`. Publishes refusals as called() does. A
/// null pointer `work` is refused, too.
template <class Issue>
collectives_error issued(const char* function, collectives_communicator* comm, CallRefusal refusal,
                         collectives_work** work, Issue&& issue) noexcept {
  if (work != nullptr) *work = nullptr;
  return called(function, comm, refusal, [&] {
    require(work, "work");
    auto handle = std::make_unique<collectives_work>();
    handle->work = issue();
    *work = handle.release();
  });
}

}  // namespace collectives::c
