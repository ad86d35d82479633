// From C++ to C: for functions that give C programs communicators which meet by a Bootstrap of C++, as that of the
// component mpi does.
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

/// `*comm` becomes what `make` makes of the options, which may be null; or null, when it throws: that becomes the
/// result and collectives_last_error(). `function`: the name of the caller, for texts.
COLLECTIVES_EXPORT collectives_error make_c_communicator(
    const char* function, const collectives_communicator_options* options, collectives_communicator** comm,
    const std::function<Communicator(const CommunicatorOptions&)>& make) noexcept;

}  // namespace collectives
