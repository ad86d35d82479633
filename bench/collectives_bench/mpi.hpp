// MPI in collectives_bench, the benchmark of collectives. MPI connects the ranks, and its collectives are compared with
// those of this library. In a build without MPI, without_mpi.cpp defines these functions, and they never start MPI.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives_bench/measure.hpp"

namespace collectives::bench {

/// MPI in this process, from its initialization by start_mpi() to its finalization by the destructor.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  virtual std::unique_ptr<Bootstrap> bootstrap() = 0;
  virtual std::unique_ptr<Competitor> competitor() = 0;
  /// Returns the name and version of MPI, such as "Open MPI v4.1.4".
  virtual std::string version() const = 0;
  /// Ends all ranks of the job. A failed rank calls this function, because it cannot reach MPI_Finalize.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// Returns whether an MPI launcher started this process.
bool under_mpi_launcher();

/// Starts MPI. Returns null if the program was built without MPI.
std::unique_ptr<MpiSession> start_mpi();

}  // namespace collectives::bench
