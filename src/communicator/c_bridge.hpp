// Function that makes a handle of the C interface from a Communicator of C++. A Bootstrap lets ranks find one another.
// An extension of this library, such as the shared library for MPI (src/mpi), offers its own Bootstrap to C programs.
// It does so by a C function like this one:
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

/// Converts `options` to C++ and calls `make` with the result. If `options` is null, uses the default options. Stores
/// the handle of the result in `*comm`. If `make` throws, stores null in `*comm` and returns the code of the error.
/// collectives_last_error() then returns the text of the error. `function`: name of the caller, for error texts.
COLLECTIVES_EXPORT collectives_error make_c_communicator(
    const char* function, const collectives_communicator_options* options, collectives_communicator** comm,
    const std::function<Communicator(const CommunicatorOptions&)>& make) noexcept;

}  // namespace collectives
