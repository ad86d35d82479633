// Helpers of the C functions that perform collectives. The function in() returns the communicator of a handle. The
// function called() performs a blocking call, and issued() starts an asynchronous one.
#pragma once

#include <memory>

#include "c_interface/handles.hpp"

namespace collectives::c {

inline Communicator& in(collectives_communicator* comm) { return require(comm, "comm").comm; }

/// Calls call(), a collective of `comm`. If the C interface refuses the arguments, publishes the refusal.
template <class Call>
collectives_error called(const char* function, collectives_communicator* comm, CallRefusal refusal,
                         Call&& call) noexcept {
  return guarded(function, [&] { refusing(in(comm), refusal, call); });
}

/// Starts a collective of `comm`. If the C interface refuses the arguments, also a null `work`, publishes the refusal.
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
