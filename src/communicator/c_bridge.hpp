// Bridge from C++ to C: makes C handles of C++ Communicators. An extension of this library can thus offer its Bootstrap
// to C programs. A Bootstrap lets ranks find one another. The component `mpi` is such an extension. An extension
// defines a C function like this one:
//
//   extern "C" collectives_error from_my_cluster(const collectives_communicator_options* options,
//                                                collectives_communicator** comm) {
//     return collectives::make_c_communicator(__func__, options, comm, [](const auto& how) {
//       return collectives::Communicator(MyBootstrap(), how);
//     });
//   }
#pragma once

#include <functional>

#include "collectives/collectives.h"
#include "collectives/communicator.hpp"
#include "collectives/export.hpp"

namespace collectives {

/// Calls `make` with the options. Null stands for the defaults. Stores the new communicator in `*comm`. If `make`
/// throws, stores null, returns the error's code, and keeps its text for collectives_last_error(). `function`: name of
/// the caller, for error texts.
COLLECTIVES_EXPORT collectives_error make_c_communicator(
    const char* function, const collectives_communicator_options* options, collectives_communicator** comm,
    const std::function<Communicator(const CommunicatorOptions&)>& make) noexcept;

}  // namespace collectives
