// Functions by which other interfaces of the library, such as those of C and of MPI, use a Communicator of C++.
//
// CallRefusal publishes that such an interface has refused a call before the Communicator has seen it. Other ranks in
// the same call then get an error. ForeignCall performs a call for which Communicator has no public function, such as a
// call with a datatype of MPI.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/communicator.hpp"
#include "core/call.hpp"

namespace collectives {

/// Publishes that this rank refuses a call, although no function of Communicator has seen the call. Ranks that perform
/// the call then get an error.
struct CallRefusal {
  Collective collective = Collective::barrier;
  bool has_counts = false;  ///< whether the call lists the lengths of all parts
  bool split = false;       ///< whether the call is split()

  /// Returns the number of the call, or 0 if the communicator has failed.
  std::uint64_t publish(Communicator& comm, std::string_view why) const noexcept;
  std::uint64_t publish(Group& group, std::string_view why) const noexcept;
};

/// Performs calls of another interface, which may have a foreign type. Requires Options without a compressor. The
/// errors are those of the functions of Communicator.
struct ForeignCall {
  static void run(Communicator& comm, Call call, const Options& options);
  static Work begin(Communicator& comm, Call call, const Options& options);
};

}  // namespace collectives
