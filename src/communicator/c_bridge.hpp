// Functions by which other interfaces use a Communicator of C++. One makes a handle of the C interface. With it, an
// extension of this library offers its own Bootstrap to C programs. Others publish that an interface has refused a call
// before the Communicator has seen it, or perform a call that no function of Communicator describes. A Bootstrap lets
// ranks find one another. One extension is the shared library for MPI (src/mpi). An extension defines a C function like
// this one:
//
//   extern "C" collectives_error from_my_cluster(const collectives_communicator_options* options,
//                                                collectives_communicator** comm) {
//     return collectives::make_c_communicator(__func__, options, comm, [](const auto& how) {
//       return collectives::Communicator(MyBootstrap(), how);
//     });
//   }
#pragma once

#include <functional>
#include <string_view>

#include "collectives/collectives.h"
#include "collectives/communicator.hpp"
#include "collectives/export.hpp"
#include "core/call.hpp"

namespace collectives {

/// Calls `make` with `options`, converted to C++; null stands for the defaults. Stores the handle of the result in
/// `*comm`. If `make` throws, stores null in `*comm` and returns the code of the error. collectives_last_error() then
/// returns the text of the error. `function`: name of the caller, for error texts.
COLLECTIVES_EXPORT collectives_error make_c_communicator(
    const char* function, const collectives_communicator_options* options, collectives_communicator** comm,
    const std::function<Communicator(const CommunicatorOptions&)>& make) noexcept;

/// Publishes that this rank refuses a call, although no function of Communicator has seen the call. Ranks that perform
/// the call then get an error.
struct CallRefusal {
  Collective collective = Collective::barrier;
  bool has_counts = false;  ///< whether the call lists the lengths of all parts
  bool split = false;       ///< whether the call is split()

  void publish(Communicator& comm, std::string_view why) const noexcept;
  void publish(Group& group, std::string_view why) const noexcept;
};

/// Performs calls of another interface, which may have a foreign type. Requires Options without a compressor. The
/// errors are those of the functions of Communicator.
struct ForeignCall {
  static void run(Communicator& comm, Call call, const Options& options);
  static Work begin(Communicator& comm, Call call, const Options& options);
};

}  // namespace collectives
