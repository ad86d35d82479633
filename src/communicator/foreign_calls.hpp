// Functions by which other interfaces of the library, such as those of C and of MPI, use a Communicator of C++.
//
// An interface may refuse a call, for example because of an invalid argument, before it calls the Communicator.
// CallRefusal then publishes the refusal. Other ranks in the same call thus get an error. ForeignCall performs a call
// for which Communicator has no public function, such as a call with a datatype of MPI.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/communicator.hpp"
#include "core/call.hpp"

namespace collectives {

/// Publishes that this rank refuses a call for which no function of Communicator has been called. Other ranks that
/// perform the call then get an error.
struct CallRefusal {
  Collective collective = Collective::barrier;
  bool has_counts = false;  ///< whether the call lists the lengths of all parts
  bool split = false;       ///< whether the call is split()

  /// Returns the number of the call, or 0 if the communicator has failed.
  std::uint64_t publish(Communicator& comm, std::string_view why) const noexcept;
  std::uint64_t publish(Group& group, std::string_view why) const noexcept;
};

/// Performs calls of another interface, whose elements may have a type that the C++ interface lacks. Requires Options
/// without a compressor. Throws the same errors as the functions of Communicator.
struct ForeignCall {
  static void run(Communicator& comm, Call call, const Options& options);
  static Work begin(Communicator& comm, Call call, const Options& options);
};

}  // namespace collectives
